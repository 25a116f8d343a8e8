//! Every command shown in the README and the documents is run and must print what is shown there, and so must
//! the cases in `tests/cmd`. `TRYCMD=overwrite cargo test -p punctual --test documents` writes what is
//! printed now.

#[test]
fn commands_print_what_the_documents_show() {
    // The commands name files as seen from the root of the repository.
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).expect("the root is there");
    trycmd::TestCases::new()
        .env("COLUMNS", "100")
        .case("README.md")
        .case("docs/cli.md")
        .case("docs/tutorial.md")
        .case("crates/punctual/tests/cmd/*.trycmd");
}

#[test]
fn the_reference_shows_the_help_of_every_command() {
    let reference = include_str!("../../../docs/cli.md");
    for command in punctual::cli::command().get_subcommands() {
        let line = format!("$ punctual {} --help\n", command.get_name());
        assert!(reference.contains(&line), "docs/cli.md lacks {line}");
    }
}
