//! `usher simulate study`: the table of how far shares are from those on one exact level.

use usher_flowcontrol::units::Nanos;

use super::super::hdr::{Unit, shown, table};
use super::{Format, Simulate, Told, index, percent};
use crate::simulation::study::{GAIN_MAX, Study, WORKERS, run};

/// The study, told; or what is wrong with what was asked.
pub(super) fn tell(asked: &Simulate) -> Result<Told, String> {
    let workers = match asked.workers {
        None => WORKERS.to_vec(),
        Some(workers @ 1..=256) => vec![workers],
        Some(workers) => return Err(format!("--workers {workers}: wanted 1 to 256")),
    };
    let render = match asked.output {
        Format::Text => text,
        Format::Json => |study: &Study| format!("{:#}\n", study.json()),
        Format::Hgrm => return Err("--output hgrm: the study has no waits to plot".to_owned()),
    };
    Ok(run(asked.seed, &workers).map(|study| render(&study)))
}

/// A row for a workload, a length of requests and a number of workers.
fn text(study: &Study) -> String {
    let head = [
        "WORKLOAD",
        "SERVICE",
        "WORKERS",
        "DEVIATION MEAN",
        "MAX",
        "BY CHANCE MEAN",
        "MAX",
        "HOLDS",
        "JAIN",
        "EXACT",
        "FIRST/OTHERS",
        "EXACT",
        "USED",
        "EXACT",
        "P99",
        "EXACT",
        "OPERATIONS",
        "GRANTS",
        "MESSAGES",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let time = |nanos: Nanos| shown(nanos.0.cast_unsigned(), Unit::Nanoseconds);
    for row in &study.rows {
        let (many, one) = (&row.outcome, &row.exact);
        let yes = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
        rows.push(vec![
            row.workload.to_owned(),
            time(row.service),
            row.workers.to_string(),
            percent(row.deviation.mean, 1),
            percent(row.deviation.max, 1),
            percent(row.noise.mean, 1),
            percent(row.noise.max, 1),
            yes(row.holds()),
            index(many.jain),
            index(one.jain),
            format!("{:.2}", many.elephant),
            format!("{:.2}", one.elephant),
            percent(many.utilisation, 1),
            percent(one.utilisation, 1),
            time(many.wait_p99),
            time(one.wait_p99),
            format!("{:.2}", row.operations),
            format!("{:.2}", row.granted),
            format!("{:.2}", row.wakes),
        ]);
    }
    let held = study.rows.iter().filter(|row| row.holds()).count();
    format!(
        "Shares on many workers beside one exact level; seed {}\n\n{}\n{held} of {} hold. An elephant on 64 workers \
         against the same on one: {:.4} (wanted: at most {})\n",
        study.seed,
        table(&rows),
        study.rows.len(),
        study.gain,
        GAIN_MAX,
    )
}
