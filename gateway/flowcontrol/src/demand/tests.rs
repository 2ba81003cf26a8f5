//! Integrals over time, and what smoothing makes of them.

use super::*;

fn period(max: f64, average: f64, deviation: f64) -> Statistics {
    Statistics { duration: 10.0, average: Some(average), deviation: Some(deviation), min: 0.0, max }
}

#[test]
fn values_held_for_no_time_count_in_the_extremes_only() {
    let mut demand = Integrator::new(Nanos(0));
    demand.set(Nanos(0), 7.0);
    demand.set(Nanos(0), 2.0);
    let read = demand.reset(Nanos::from_secs(4));
    assert_eq!((read.duration, read.average, read.deviation), (4.0, Some(2.0), Some(0.0)));
    assert_eq!((read.min, read.max), (0.0, 7.0));
    let read = demand.read(Nanos::from_secs(4));
    assert_eq!((read.average, read.min, read.max), (None, 2.0, 2.0));
}

#[test]
fn a_clock_that_steps_back_adds_nothing() {
    let mut demand = Integrator::new(Nanos::from_secs(10));
    demand.add(Nanos::from_secs(11), 4.0);
    demand.add(Nanos::from_secs(5), -1.0);
    let read = demand.read(Nanos::from_secs(12));
    assert_eq!((read.duration, read.average), (2.0, Some(1.5)));
}

#[test]
fn smoothed_demand_rises_at_once_and_falls_slowly() {
    let mut demand = SeatDemand::default();
    demand.update(&period(300.0, 280.0, 20.0));
    assert_eq!((demand.high_watermark, demand.smoothed), (Seats(300), 300.0));
    demand.update(&period(0.0, 0.0, 0.0));
    assert!((demand.smoothed - 293.1).abs() < 1e-9);
    demand.update(&Statistics { duration: 0.0, average: None, deviation: None, min: 0.0, max: 2.5 });
    assert_eq!(demand.high_watermark, Seats(3), "halves away from zero");
    assert!((demand.smoothed - 293.1).abs() < 1e-9);
}
