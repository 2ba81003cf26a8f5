//! Log lines: to stderr, for people or for machines, never one per request.
//!
//! Lines are written by a thread of their own, so that a slow terminal or a full pipe delays nobody; when it
//! cannot keep up, lines are dropped and counted.

use std::cell::Cell;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use usher_flowcontrol::units::Nanos;

use crate::config::options::values::LogFormat;

/// Lines that may wait to be written: some hundred KB, and more than a burst of reloads says.
const LINES_MAX: usize = 1024;

/// Lines that were dropped because the reader of stderr was too slow.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines could not be written since the start.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// From now on panics are log lines, whichever thread has one: where, and the stack if `RUST_BACKTRACE` asks for it.
pub fn panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let at = panic.location().map(ToString::to_string);
        let said = panic.payload_as_str().unwrap_or("something that is no text");
        let backtrace = std::backtrace::Backtrace::capture();
        let stack = (backtrace.status() == std::backtrace::BacktraceStatus::Captured)
            .then(|| tracing::field::display(&backtrace));
        tracing::error!(thread = thread.name(), at, said, stack, "panic");
    }));
}

/// For what may happen again and again, and must not fill the log: said at once, and then once in a while.
#[derive(Debug, Default)]
pub struct Seldom(Cell<Option<Nanos>>);

/// Between two lines that say the same.
const SELDOM: Nanos = Nanos::from_millis(10_000);

impl Seldom {
    /// Whether it is to be said now.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        let due = self.0.get().is_none_or(|said| now >= said + SELDOM);
        if due {
            self.0.set(Some(now));
        }
        due
    }
}

/// Writes what is left when it is dropped: keep it until the end of the program.
#[derive(Debug)]
pub struct Flush {
    lines: SyncSender<Message>,
    thread: Option<JoinHandle<()>>,
}

/// From now on log lines are written. `level` as `--log-level` takes it.
///
/// # Errors
/// The level is not understood, the thread cannot be started, or somebody logs already.
pub fn start(format: LogFormat, level: &str) -> Result<Flush, String> {
    let targets: Targets = level.parse().map_err(|error| format!("--log-level: {error}"))?;
    let (lines, waiting) = sync_channel::<Message>(LINES_MAX);
    let write = move || {
        while let Ok(Message::Line(line)) = waiting.recv() {
            let _ = io::stderr().write_all(&line);
        }
    };
    let thread = std::thread::Builder::new()
        .name("usher-log".into())
        .spawn(write)
        .map_err(|error| format!("the log's thread cannot be started: {error}"))?;
    let registry = tracing_subscriber::registry().with(targets);
    let layer = tracing_subscriber::fmt::layer().with_writer(Lines(lines.clone()));
    match format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    }
    .map_err(|error| error.to_string())?;
    Ok(Flush { lines, thread: Some(thread) })
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    End,
}

/// Hands lines to the thread.
struct Lines(SyncSender<Message>);

/// One line; sent when it is complete.
struct Line<'a> {
    lines: &'a SyncSender<Message>,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { lines: &self.0, text: Vec::new() }
    }
}

impl io::Write for Line<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let line = Message::Line(std::mem::take(&mut self.text));
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let _ = self.lines.send(Message::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
