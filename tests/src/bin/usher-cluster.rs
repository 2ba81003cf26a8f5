//! `cargo xtask cluster`: starts, ends and shows a control plane on loopback with usher in front.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::json;
use usher_tests::Outcome;
use usher_tests::cluster::{Cluster, Options, Process, process, programs};

/// A real Kubernetes control plane on loopback with usher in front.
#[derive(Parser)]
#[command(name = "cargo xtask cluster", arg_required_else_help = true)]
struct Arguments {
    /// The cluster's folder [default: target/cluster/run]
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds what is missing and starts everything
    Up {
        /// Leave usher out: everything talks to kube-apiserver itself
        #[arg(long)]
        without_usher: bool,
        /// Nodes (without machines) to make
        #[arg(long, default_value_t = 3, value_name = "N")]
        nodes: usize,
    },
    /// Ends what was started, by pid, and nothing else; files and logs stay
    Down,
    /// Shows what runs
    Status {
        /// How to print it
        #[arg(long, short, default_value = "text")]
        output: Format,
    },
    /// Builds the control plane's programs and starts nothing
    Build,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let folder = arguments.dir.unwrap_or_else(|| programs::root().join("target/cluster/run"));
    let outcome = match arguments.command {
        Command::Up { without_usher, nodes } => up(Options { folder, usher: !without_usher, nodes }).await,
        Command::Down => down(folder).await,
        Command::Status { output } => status(folder, output),
        Command::Build => programs::build(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

async fn up(options: Options) -> Outcome {
    let cluster = Cluster::up(&options).await.map_err(|why| {
        format!("{why}\nwhat was started keeps running, to be looked at; `cargo xtask cluster down` ends it")
    })?;
    println!("\nthe cluster runs; logs in {}", cluster.folder.join("logs").display());
    if cluster.with_usher {
        println!("through usher:  export KUBECONFIG={}", cluster.kubeconfig("admin").display());
        println!("metrics:        http://{}/metrics", cluster.admin());
    }
    println!("direct:         export KUBECONFIG={}", cluster.kubeconfig_direct("admin").display());
    println!("kubectl:        {}", programs::folder().join("kubectl").display());
    println!("end it:         cargo xtask cluster down --dir {}", cluster.folder.display());
    Ok(())
}

async fn down(folder: PathBuf) -> Outcome {
    let ended = Cluster::open(&folder)?.down().await?;
    for process in &ended {
        println!("ended {} (pid {})", process.name, process.pid);
    }
    if ended.is_empty() {
        println!("nothing ran in {}", folder.display());
    }
    Ok(())
}

fn status(folder: PathBuf, format: Format) -> Outcome {
    let cluster = Cluster::open(&folder)?;
    let processes = cluster.processes();
    match format {
        Format::Text => {
            for process in &processes {
                let state = if process.runs() { "runs" } else { "has ended" };
                println!("{:<24} pid {:<8} {state}", process.name, process.pid);
            }
            if processes.is_empty() {
                println!("nothing runs in {}", folder.display());
            }
        }
        Format::Json => {
            // Who reads only the beginning (`| head`) has closed the pipe: not a failure.
            let _ = writeln!(std::io::stdout(), "{:#}", document(&cluster, &processes));
        }
    }
    Ok(())
}

fn document(cluster: &Cluster, processes: &[Process]) -> serde_json::Value {
    let processes: Vec<_> = processes
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "pid": one.pid,
                "program": one.program,
                "running": one.runs(),
                "log": process::log_path(&cluster.folder, &one.name),
            })
        })
        .collect();
    json!({
        "folder": cluster.folder,
        "usher": cluster.with_usher.then(|| format!("https://127.0.0.1:{}", cluster.ports.usher)),
        "admin": cluster.with_usher.then(|| format!("http://{}", cluster.admin())),
        "apiserver": format!("https://127.0.0.1:{}", cluster.ports.apiserver),
        "kubeconfig": {"usher": cluster.kubeconfig("admin"), "direct": cluster.kubeconfig_direct("admin")},
        "processes": processes,
    })
}
