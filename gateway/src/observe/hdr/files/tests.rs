use super::*;
use crate::observe::hdr::Metric;
use crate::observe::hdr::recorder::empty;

const NOON: Duration = Duration::from_secs(1_763_726_400);

fn lines(tag: &str) -> String {
    let mut histogram = empty(Metric::Wait);
    histogram.saturating_record(1);
    let mut text = String::new();
    hlog::put_line(&mut text, tag, NOON, Duration::from_secs(1), 1, &hlog::encode(&histogram));
    text
}

/// Runs with files in a folder of their own, by both ways of writing.
fn each_way<F: Future<Output = ()>>(test: impl Fn(PathBuf, Medium) -> F) {
    let uring = tempfile::tempdir().unwrap();
    let runtime = tokio_uring::Runtime::new(&tokio_uring::builder()).unwrap();
    runtime.block_on(test(uring.path().to_owned(), Medium::Uring));
    let plain = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(test(plain.path().to_owned(), Medium::Plain));
}

fn files(folder: &std::path::Path, medium: Medium, size_max: u64) -> Files {
    let keep = Keep { folder: folder.into(), size_max, age_max: Duration::from_secs(3600), files_max: 3 };
    Files::new(keep, medium, Arc::default())
}

/// Tags of all lines in the folder's files, file by file.
fn tags(folder: &std::path::Path) -> Vec<Vec<String>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let log = hlog::read(&fs::read(path).unwrap()).unwrap();
        log.lines.into_iter().map(|line| line.tag).collect()
    };
    paths.iter().map(read).collect()
}

#[test]
fn intervals_are_appended_to_one_file() {
    each_way(async |folder, medium| {
        let mut files = files(&folder, medium, 1 << 20);
        files.append(NOON, &(lines("a") + &lines("b"))).await;
        files.append(NOON, &lines("c")).await;
        assert_eq!(tags(&folder), [["a", "b", "c"]]);
        assert_eq!(files.counts.written.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_file_that_would_become_too_large_is_ended_and_the_oldest_go() {
    each_way(async |folder, medium| {
        fs::write(folder.join("mine.txt"), "not a log").unwrap();
        let mut files = files(&folder, medium, 1);
        for tag in ["a", "b", "c", "d", "e"] {
            files.append(NOON, &lines(tag)).await;
        }
        fs::remove_file(folder.join("mine.txt")).expect("what is not ours is left alone");
        assert_eq!(tags(&folder), [["c"], ["d"], ["e"]], "three files are kept");
    });
}

#[test]
fn a_file_that_is_too_old_is_ended() {
    each_way(async |folder, medium| {
        let mut files = files(&folder, medium, 1 << 20);
        for (second, tag) in [(0, "a"), (3599, "b"), (3600, "c")] {
            files.append(NOON + Duration::from_secs(second), &lines(tag)).await;
        }
        assert_eq!(tags(&folder), [vec!["a", "b"], vec!["c"]]);
    });
}

#[test]
fn what_cannot_be_written_is_counted_and_the_rest_stays_whole() {
    each_way(async |folder, medium| {
        let gone = folder.join("gone");
        let mut files = files(&gone, medium, 1 << 20);
        files.append(NOON, &lines("lost")).await;
        assert_eq!(files.counts.errors.load(Ordering::Relaxed), 1);
        fs::create_dir(&gone).unwrap();
        files.append(NOON, &lines("kept")).await;
        assert_eq!(tags(&gone), [["kept"]]);
        assert_eq!(files.counts.errors.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_file_that_was_removed_is_begun_anew() {
    each_way(async |folder, medium| {
        let mut files = files(&folder, medium, 1 << 20);
        files.append(NOON, &lines("a")).await;
        fs::remove_file(&files.open.as_ref().unwrap().path).unwrap();
        files.append(NOON, &lines("b")).await;
        assert_eq!(tags(&folder), [["b"]]);
    });
}
