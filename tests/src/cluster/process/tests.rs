//! Ending by pid must never hit anything but what was started.

use super::*;

fn sleeper(folder: &Path) -> Process {
    for part in ["logs", "run"] {
        fs::create_dir_all(folder.join(part)).expect("a folder");
    }
    Process::start(folder, "sleeper", Path::new("/bin/sleep"), &["60".into()]).expect("sleep starts")
}

/// Starts a program and hands its record to `check`; the program never outlives the test.
async fn with_sleeper(check: impl AsyncFnOnce(&Path, Process)) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = sleeper(folder.path());
    check(folder.path(), process.clone()).await;
    process.signal(libc::SIGKILL);
}

#[tokio::test]
async fn what_was_started_is_found_again_and_ended() {
    with_sleeper(async |folder, process| {
        assert_eq!(Process::recorded(folder), std::slice::from_ref(&process));
        assert!(process.runs());
        process.end().await.expect("it ends");
        assert!(!process.runs());
        assert_eq!(Process::recorded(folder), []);
    })
    .await;
}

#[tokio::test]
async fn a_pid_that_is_another_program_is_left_alone() {
    with_sleeper(async |_, process| {
        let other = Process { program: "/bin/true".into(), ..process.clone() };
        assert!(!other.runs());
        other.end().await.expect("nothing to end");
        assert!(process.runs());
    })
    .await;
}

#[tokio::test]
async fn a_pid_that_was_used_again_is_left_alone() {
    with_sleeper(async |_, process| {
        let earlier = Process { started: process.started - 1, ..process.clone() };
        assert!(!earlier.runs());
        earlier.end().await.expect("nothing to end");
        assert!(process.runs());
    })
    .await;
}

#[tokio::test]
async fn a_program_that_ends_is_told_with_the_end_of_its_log() {
    let folder = tempfile::tempdir().expect("a folder");
    for part in ["logs", "run"] {
        fs::create_dir_all(folder.path().join(part)).expect("a folder");
    }
    let script = ["-c".into(), "echo the reason; exec sleep 0.1".into()];
    let process = Process::start(folder.path(), "short", Path::new("/bin/sh"), &script).expect("sh starts");
    process.gone_within(Duration::from_secs(20)).await.expect("it ends");
    let Err(Pending::Never(why)) = process.check() else { panic!("it still runs") };
    assert!(why.contains("the reason"), "{why}");
}
