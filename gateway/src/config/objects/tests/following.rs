//! The folder changes under us.

use std::os::unix::fs::symlink;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::*;
use crate::reload::{Outcome, Reload as _};

/// More than the poll, so that a lost event fails no test.
const PATIENCE: Duration = Duration::from_secs(20);

type News = mpsc::Receiver<Result<Arc<Objects>, Refusal>>;

fn follow(folder: &TempDir) -> (Arc<Followed>, News) {
    let (tell, news) = mpsc::channel();
    let source = Source { folder: Some(folder.path().into()), suggested: true };
    let followed = Followed::new(source, move |change| {
        let _ = tell.send(change.map(Arc::clone).map_err(Clone::clone));
    });
    (Arc::new(followed.expect("a good folder")), news)
}

#[test]
fn only_news_is_told() {
    let folder = folder(&[("a.yaml", SCHEMA), ("b.yaml", LEVEL)]);
    let (followed, news) = follow(&folder);
    assert_eq!(followed.check(), Outcome::Unchanged);
    // A comment changes bytes, not objects.
    fs::write(folder.path().join("a.yaml"), format!("# mine\n{SCHEMA}")).expect("written");
    assert_eq!(followed.check(), Outcome::Unchanged);
    assert!(news.try_recv().is_err());

    fs::write(folder.path().join("a.yaml"), SCHEMA.replace("alice", "bob")).expect("written");
    assert_eq!(followed.check(), Outcome::Reloaded);
    let told = news.try_recv().expect("news").expect("good");
    assert_eq!(told, followed.current());
    assert_eq!(
        schema(&told, "mine").spec.rules[0].subjects[0].user.as_ref().map(|user| &*user.name),
        Some("bob")
    );
    assert_eq!((followed.reloads(), followed.refusals()), (1, 0));
}

#[test]
fn a_bad_folder_is_refused_once_and_the_last_good_objects_stay() {
    let folder = folder(&[("a.yaml", SCHEMA), ("b.yaml", LEVEL)]);
    let (followed, news) = follow(&folder);
    let good = followed.current();
    fs::write(folder.path().join("c.yaml"), "kind: [").expect("written");
    assert!(matches!(followed.check(), Outcome::Refused(_)));
    assert_eq!(followed.check(), Outcome::Unchanged);
    let refusal = news.try_recv().expect("news").expect_err("refused");
    assert_eq!(refusal.findings[0].file.as_deref(), Some("c.yaml"));
    assert_eq!(followed.current(), good);

    fs::remove_file(folder.path().join("c.yaml")).expect("removed");
    assert_eq!(followed.check(), Outcome::Reloaded, "that it is good again is news");
    assert_eq!(news.try_recv().expect("news").expect("good"), good);
    assert_eq!((followed.reloads(), followed.refusals()), (1, 1));

    fs::remove_dir_all(folder.path()).expect("removed");
    assert!(matches!(followed.check(), Outcome::Refused(_)));
    assert_eq!(followed.current(), good);
}

#[test]
fn a_bad_folder_is_no_start() {
    let folder = folder(&[("a.yaml", "kind: [")]);
    let source = Source { folder: Some(folder.path().into()), suggested: true };
    assert!(Followed::new(source, |_| {}).is_err());
}

#[test]
fn the_watch_sees_a_swapped_mount() {
    let folder = folder(&[]);
    let version = |name: &str, user: &str| {
        fs::create_dir(folder.path().join(name)).expect("a version");
        let path = folder.path().join(name).join("a.yaml");
        fs::write(path, SCHEMA.replace("alice", user)).expect("its file");
    };
    version("..1", "alice");
    symlink("..1", folder.path().join("..data")).expect("a symlink");
    symlink("..data/a.yaml", folder.path().join("a.yaml")).expect("a symlink");
    let (followed, news) = follow(&folder);
    let _watch = watch(followed).expect("a thread");

    version("..2", "bob");
    symlink("..2", folder.path().join("..data_tmp")).expect("a symlink");
    fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).expect("swapped");
    let told = news.recv_timeout(PATIENCE).expect("news").expect("good");
    assert_eq!(
        schema(&told, "mine").spec.rules[0].subjects[0].user.as_ref().map(|user| &*user.name),
        Some("bob")
    );
}
