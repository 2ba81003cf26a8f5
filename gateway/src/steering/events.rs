//! What the program itself has to say, in the log at level debug. It is told at its start whether anybody wants to know.

use std::time::Duration;

use aya::Ebpf;
use aya_log::EbpfLogger;

/// The program's variable that says what it should write; see `aya-log`.
pub(super) const LEVEL: &str = aya_log::LEVEL;

/// `aya-log`'s number for nothing at all.
const NOTHING: u8 = 0;
/// For all but traces.
const DEBUG: u8 = aya_log::Level::Debug as u8;
/// Between two looks. Its buffer holds some hundred lines; those that find it full are gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the program should write.
pub(super) fn level() -> u8 {
    if is_wanted() { DEBUG } else { NOTHING }
}

fn is_wanted() -> bool {
    tracing::enabled!(target: "usher::steering", tracing::Level::DEBUG)
}

/// Reads what one copy writes for as long as the process lives. A program that never writes has no buffer.
pub(super) fn listen(ebpf: &mut Ebpf, address: &str) {
    if !is_wanted() {
        return;
    }
    let Ok(mut logger) = EbpfLogger::init_with_logger(ebpf, ToTracing(address.to_owned())) else { return };
    let read = move || {
        loop {
            logger.flush();
            std::thread::sleep(LOOK_EVERY);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("usher-steering".into()).spawn(read) {
        tracing::debug!(%error, "nobody reads what the steering program writes: no thread");
    }
}

/// From one way of logging to the other.
struct ToTracing(String);

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::debug!(target: "usher::steering", address = self.0, "{}", record.args());
    }

    fn flush(&self) {}
}
