// HdrHistogram's Java library as a witness: run by main.rs with `java -cp HdrHistogram.jar Tools.java …`.
//
//   read PERCENTILES FILE…   what the logs hold, all intervals of a tag together: a JSON object a tag
//   write FILE               a log as the library writes it: two tags and none, times relative to a BaseTime

import java.io.File;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.HdrHistogram.EncodableHistogram;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramLogReader;
import org.HdrHistogram.HistogramLogWriter;

public class Tools {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "read" -> read(arguments[1].split(","), Arrays.copyOfRange(arguments, 2, arguments.length));
            case "write" -> write(arguments[1]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void read(String[] percentiles, String[] files) throws Exception {
        Map<String, Histogram> sums = new TreeMap<>();
        Map<String, Integer> lines = new TreeMap<>();
        for (String file : files) {
            try (HistogramLogReader reader = new HistogramLogReader(new File(file))) {
                while (reader.hasNext()) {
                    EncodableHistogram next = reader.nextIntervalHistogram();
                    if (next == null) break;
                    String tag = next.getTag() == null ? "" : next.getTag();
                    Histogram histogram = (Histogram) next;
                    Histogram sum = sums.computeIfAbsent(tag, absent -> {
                        Histogram empty = new Histogram(histogram);
                        empty.setAutoResize(true);
                        return empty;
                    });
                    sum.add(histogram);
                    lines.merge(tag, 1, Integer::sum);
                }
            }
        }
        for (Map.Entry<String, Histogram> entry : sums.entrySet()) {
            Histogram sum = entry.getValue();
            StringBuilder values = new StringBuilder();
            for (String percentile : percentiles) {
                if (values.length() > 0) values.append(',');
                values.append('"').append(percentile).append("\":")
                    .append(sum.getValueAtPercentile(Double.parseDouble(percentile)));
            }
            System.out.printf("{\"tag\":\"%s\",\"lines\":%d,\"count\":%d,\"min\":%d,\"max\":%d,\"percentiles\":{%s}}%n",
                entry.getKey(), lines.get(entry.getKey()), sum.getTotalCount(), sum.getMinValue(), sum.getMaxValue(), values);
        }
    }

    private static void write(String file) throws Exception {
        try (PrintStream stream = new PrintStream(new FileOutputStream(file))) {
            HistogramLogWriter writer = new HistogramLogWriter(stream);
            long start = 1_763_735_400_000L;
            writer.outputComment("[written by the Java library]");
            writer.outputLogFormatVersion();
            writer.outputStartTime(start);
            writer.setBaseTime(start);
            writer.outputBaseTime(start);
            writer.outputLegend();
            for (int interval = 0; interval < 3; interval++) {
                for (String tag : new String[] {null, "first", "second"}) {
                    Histogram histogram = new Histogram(1, 3_600_000_000L, 3);
                    for (long value = 1; value < 2_000; value++) {
                        histogram.recordValue(value * value * (interval + 1) % 3_000_000_000L);
                    }
                    histogram.setTag(tag);
                    histogram.setStartTimeStamp(start + 1_000L * interval);
                    histogram.setEndTimeStamp(start + 1_000L * (interval + 1));
                    writer.outputIntervalHistogram(histogram);
                }
            }
        }
    }
}
