//! Good and bad contents, and every way in which files are replaced.

use std::fs;
use std::sync::mpsc::channel;

use super::*;

fn number(path: &Path) -> Result<Reloaded<u32>, FileFault> {
    let own = path.to_owned();
    Reloaded::new("number", vec![path.to_owned()], move |contents| {
        let text = String::from_utf8_lossy(contents.of(&own));
        text.trim().parse().map_err(|error| FileFault::new(&own, error, "write a number"))
    })
}

#[test]
fn bad_content_is_refused_once_and_the_old_value_stays() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("number");
    assert!(number(&path).is_err(), "there is no file yet");
    fs::write(&path, "1").expect("written");
    let value = number(&path).expect("a number");
    assert_eq!(value.check(), Outcome::Unchanged);
    fs::write(&path, "one").expect("written");
    let Outcome::Refused(fault) = value.check() else { panic!("not a number") };
    assert_eq!((fault.path.as_path(), fault.remedy), (path.as_path(), "write a number"));
    assert_eq!(value.check(), Outcome::Unchanged);
    fs::remove_file(&path).expect("removed");
    assert!(matches!(value.check(), Outcome::Refused(_)));
    assert_eq!((*value.current(), value.reloads(), value.refusals()), (1, 0, 2));
    fs::write(&path, "2").expect("written");
    assert_eq!(value.check(), Outcome::Reloaded);
    assert_eq!(*value.current(), 2);
}

/// Says through a channel when the file was looked at and had changed.
struct Told(Reloaded<u32>, Mutex<mpsc::Sender<u32>>);

impl Reload for Told {
    fn what(&self) -> &'static str {
        self.0.what()
    }
    fn paths(&self) -> &[PathBuf] {
        self.0.paths()
    }
    fn check(&self) -> Outcome {
        let outcome = self.0.check();
        if outcome == Outcome::Reloaded {
            self.1.lock().expect("not poisoned").send(*self.0.current()).expect("somebody listens");
        }
        outcome
    }
    fn reloads(&self) -> u64 {
        self.0.reloads()
    }
    fn refusals(&self) -> u64 {
        self.0.refusals()
    }
}

/// Long enough for a busy machine; a healthy test never waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn the_watch_sees_a_rewrite_a_rename_and_a_swapped_symlink() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    // As the kubelet mounts a Secret: number -> ..data/number, ..data -> a folder of this version.
    fs::create_dir(at("v1")).expect("folder");
    fs::write(at("v1/number"), "1").expect("written");
    std::os::unix::fs::symlink("v1", at("..data")).expect("link");
    std::os::unix::fs::symlink("..data/number", at("number")).expect("link");
    let (tell, told) = channel();
    let value = Arc::new(Told(number(&at("number")).expect("a number"), Mutex::new(tell)));
    let watch = Watch::start(vec![value], Duration::from_secs(3600)).expect("a thread");

    fs::create_dir(at("v2")).expect("folder");
    fs::write(at("v2/number"), "2").expect("written");
    std::os::unix::fs::symlink("v2", at("..new")).expect("link");
    fs::rename(at("..new"), at("..data")).expect("swapped");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(2));

    fs::write(at("next"), "3").expect("written");
    fs::rename(at("next"), at("number")).expect("renamed");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(3));

    fs::write(at("number"), "4").expect("written");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(4));
    drop(watch); // joins: the thread must end
}

#[test]
fn polling_and_a_nudge_find_what_events_miss() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("number");
    fs::write(&path, "1").expect("written");
    let (tell, told) = channel();
    let value: Arc<dyn Reload> = Arc::new(Told(number(&path).expect("a number"), Mutex::new(tell)));
    let (_nudge, nudges) = channel();
    let polled = value.clone();
    // No watcher at all: only the poll's interval.
    std::thread::spawn(move || follow(&[polled], &nudges, Duration::from_millis(5)));
    fs::write(&path, "2").expect("written");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(2));
}
