//! The cells of the table: what is measured, by name.

use std::fmt;

use crate::Failure;

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// The clock: what is in every other number.
    Clock,
    /// A free seat for everyone.
    Unsaturated(Shape),
    /// Eight seats, and 400 requests that wait.
    Saturated(Shape),
    /// Saturated, requests of one to ten seats on 64 seats.
    Widths,
    /// Unsaturated, and all of one flow, whose hash the connection remembers.
    KnownFlow,
    /// Unsaturated, and the request line is parsed, too.
    RequestLine,
    /// From so many threads at once, which share the level.
    Threads(Load, usize),
}

/// What the threads' requests find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// As [`Cell::Unsaturated`], one request of each thread at a time.
    Unsaturated,
    /// As [`Cell::Saturated`].
    Saturated,
}

/// Queues of the level and flows of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// 128 queues and hands of 6, as suggested; 1 000 flows.
    Suggested,
    /// So many queues and hands of 4: 6 of 8 192 would need more bits than a flow's hash has.
    Queues(i32),
    /// 128 queues, so many flows.
    Flows(usize),
}

/// All but those of many threads, in the order in which they are measured.
const CELLS: &[Cell] = &[
    Cell::Clock,
    Cell::Unsaturated(Shape::Suggested),
    Cell::Saturated(Shape::Suggested),
    Cell::Unsaturated(Shape::Queues(64)),
    Cell::Unsaturated(Shape::Queues(128)),
    Cell::Unsaturated(Shape::Queues(1024)),
    Cell::Unsaturated(Shape::Queues(8192)),
    Cell::Saturated(Shape::Queues(64)),
    Cell::Saturated(Shape::Queues(128)),
    Cell::Saturated(Shape::Queues(1024)),
    Cell::Saturated(Shape::Queues(8192)),
    Cell::Saturated(Shape::Flows(10)),
    Cell::Saturated(Shape::Flows(100)),
    Cell::Saturated(Shape::Flows(10_000)),
    Cell::Saturated(Shape::Flows(50_000)),
    Cell::Widths,
    Cell::KnownFlow,
    Cell::RequestLine,
];

impl Cell {
    /// Those whose names begin with one of `wanted`, or are it; all if nothing is wanted.
    pub(super) fn chosen(wanted: &[String], cores: usize) -> Result<Vec<Self>, Failure> {
        let cells = Self::all(cores);
        let names: Vec<String> = cells.iter().map(ToString::to_string).collect();
        // `unsaturated` is a cell, and the beginning of others.
        let fits = |name: &str, word: &String| {
            if names.contains(word) { name == word } else { name.starts_with(word.as_str()) }
        };
        if let Some(unknown) = wanted.iter().find(|word| !names.iter().any(|name| fits(name, word))) {
            return Err(format!("there is no cell {unknown:?}; there are {}", names.join(", ")).into());
        }
        let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|word| fits(name, word));
        Ok(cells.iter().zip(&names).filter(|(_, name)| chosen(name)).map(|(cell, _)| *cell).collect())
    }

    /// On a machine with so many cores: threads double up to one for each.
    fn all(cores: usize) -> Vec<Self> {
        let doubled = std::iter::successors(Some(1), |threads| Some(threads * 2));
        let mut counts: Vec<usize> = doubled.take_while(|threads| *threads < cores).collect();
        counts.push(cores.max(2)); // two threads can always be tried
        let mut cells = CELLS.to_vec();
        for load in [Load::Unsaturated, Load::Saturated] {
            cells.extend(counts.iter().map(|threads| Self::Threads(load, *threads)));
        }
        cells
    }

    /// Whether its threads share a level.
    pub(super) fn is_shared(self) -> bool {
        matches!(self, Self::Threads(..))
    }

    /// Of many threads: the cell with one.
    pub(super) fn alone(self) -> Option<Self> {
        match self {
            Self::Threads(load, 2..) => Some(Self::Threads(load, 1)),
            _ => None,
        }
    }

    /// Whether callgrind's count means something: it runs one thread at a time, and others would spin meanwhile.
    pub(super) fn is_counted(self) -> bool {
        self != Self::Clock && self.alone().is_none()
    }

    /// Whether kube-apiserver's implementation is: it knows nothing of connections, and parses elsewhere.
    pub(super) fn is_theirs(self) -> bool {
        !matches!(self, Self::Clock | Self::KnownFlow | Self::RequestLine)
    }

    /// A line for the reader.
    pub(super) fn about(self) -> String {
        match self {
            Self::Clock => "what one reading of the clock takes; each decision of usher's holds two".into(),
            Self::Unsaturated(shape) => format!("one request at a time, {shape}"),
            Self::Saturated(shape) => format!("8 seats, 400 requests wait, {shape}"),
            Self::Widths => {
                "64 seats, 400 requests of 1 to 10 seats wait; their estimates are usher's".into()
            }
            Self::KnownFlow => "as unsaturated, but of one flow, whose hash the connection remembers".into(),
            Self::RequestLine => "as unsaturated, and method and target are parsed each time".into(),
            Self::Threads(load, threads) => {
                format!("as {load}, {threads} threads that share a level; wall time over all decisions")
            }
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, shape) = match self {
            Self::Clock => return f.write_str("clock"),
            Self::Widths => return f.write_str("widths"),
            Self::KnownFlow => return f.write_str("known-flow"),
            Self::RequestLine => return f.write_str("request-line"),
            Self::Threads(load, threads) => return write!(f, "threads-{load}-{threads}"),
            Self::Unsaturated(shape) => ("unsaturated", shape),
            Self::Saturated(shape) => ("saturated", shape),
        };
        match shape {
            Shape::Suggested => f.write_str(name),
            Shape::Queues(queues) => write!(f, "{name}-queues-{queues}"),
            Shape::Flows(flows) => write!(f, "{name}-flows-{flows}"),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsaturated => "unsaturated",
            Self::Saturated => "saturated",
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suggested => f.write_str("128 queues in hands of 6, 1000 flows"),
            Self::Queues(queues) => write!(f, "{queues} queues in hands of 4, 1000 flows"),
            Self::Flows(flows) => write!(f, "128 queues in hands of 6, {flows} flows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cell;

    #[test]
    fn cells_are_chosen_by_name_or_by_the_beginnings_of_their_names() {
        let names = |wanted: &[&str], cores| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let cells = Cell::chosen(&wanted, cores).expect("known names");
            cells.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(&["unsaturated", "saturated-f"], 2).len(), 5);
        assert_eq!(names(&["unsat"], 2).len(), 5);
        assert_eq!(names(&["threads-saturated-2", "clock"], 2), ["clock", "threads-saturated-2"]);
        let three = ["threads-saturated-1", "threads-saturated-2", "threads-saturated-3"];
        assert_eq!(names(&["threads-sat"], 3), three);
        assert_eq!(names(&["threads-u"], 1), ["threads-unsaturated-2"]);
        assert_eq!(names(&[], 4).len(), Cell::all(4).len());
        assert!(Cell::chosen(&["nowhere".into()], 2).is_err());
    }
}
