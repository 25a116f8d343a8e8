//! The `punctual` program; everything it does is in the library beside it.

#![forbid(unsafe_code)]

use punctual_linux::os::{signal, stack};

fn main() -> std::process::ExitCode {
    signal::survive_file_size_limit();
    if let Err(error) = stack::raise_stack_limit() {
        eprintln!("error: {error}");
        return punctual::cli::exit::USAGE.into();
    }
    punctual::cli::main()
}
