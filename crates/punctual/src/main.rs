//! The `punctual` program; everything it does is in the library beside it.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    punctual::cli::main()
}
