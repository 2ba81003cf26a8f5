"""HdrHistogram's Python library as a witness: run by main.rs.

    read PERCENTILES FILE…   what the logs hold, all intervals of a tag together: a JSON object a tag
    write FILE               a log as the library writes it

The library rounds the rank of a percentile to the nearest whole number, where the Java library (and usher) round it
up. So a percentile is told three times: as the library tells it, by the rank rounded up, and one rank before that.
"""

import json
import math
import sys

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader, HistogramLogWriter


def at_rank(histogram, rank):
    total = 0
    for index in range(histogram.counts_len):
        total += histogram.get_count_at_index(index)
        if total >= rank:
            return histogram.get_highest_equivalent_value(histogram.get_value_from_index(index))
    raise ValueError("no such rank")


def read(percentiles, files):
    sums, lines = {}, {}
    for file in files:
        # The library wants something to take the parameters from where a line does not say.
        reader = HistogramLogReader(file, HdrHistogram(1, 3_600_000_000_000, 2))
        while True:
            histogram = reader.get_next_interval_histogram()
            if histogram is None:
                break
            tag = histogram.get_tag() or ""
            lines[tag] = lines.get(tag, 0) + 1
            if tag in sums:
                sums[tag].add(histogram)
            else:
                sums[tag] = histogram
        reader.close()
    for tag, histogram in sorted(sums.items()):
        values = {}
        for percentile in percentiles:
            rank = max(math.ceil(math.nextafter(float(percentile), 0) * histogram.total_count / 100), 1)
            values[percentile] = [
                histogram.get_value_at_percentile(float(percentile)),
                at_rank(histogram, rank),
                at_rank(histogram, max(rank - 1, 1)),
            ]
        row = {
            "tag": tag,
            "lines": lines[tag],
            "count": histogram.total_count,
            "min": histogram.get_min_value(),
            "max": histogram.get_max_value(),
            "percentiles": values,
        }
        print(json.dumps(row))


def write(file):
    with open(file, "w", encoding="ascii") as stream:
        writer = HistogramLogWriter(stream)
        start = 1_763_735_400_000
        writer.output_comment("[written by the Python library]")
        writer.output_log_format_version()
        writer.output_base_time(start)  # its output_start_time raises: it calls a method that datetime has not
        writer.output_legend()
        for interval in range(3):
            histogram = HdrHistogram(1, 3_600_000_000, 3)
            for value in range(1, 2_000):
                histogram.record_value(value * value * (interval + 1))
            histogram.set_start_time_stamp(start + 1_000 * interval)
            histogram.set_end_time_stamp(start + 1_000 * (interval + 1))
            writer.output_interval_histogram(histogram)


if sys.argv[1] == "read":
    read(sys.argv[2].split(","), sys.argv[3:])
else:
    write(sys.argv[2])
