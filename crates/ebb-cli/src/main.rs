//! The `ebb` binary: a node, its HTTP endpoints and every command. Exit codes: 0 done, 1 failed, 2 usage or
//! configuration, 3 a check found problems.

#[macro_use]
mod cli;
mod dashboard;
mod demo;
mod http;
mod log;
mod trace;

use std::process::ExitCode;

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::from(1);
        }
    };
    let code = runtime.block_on(cli::main());
    trace::end();
    // A batch that is being cancelled must not keep the process: the database ends it with the connection.
    runtime.shutdown_background();
    code
}
