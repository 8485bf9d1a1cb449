use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Maitred::command().debug_assert();
}

/// The help of a command, on a terminal of 80 columns.
fn help(command: &clap::Command, is_long: bool) -> String {
    let mut command = command.clone().term_width(80);
    let help = if is_long { command.render_long_help() } else { command.render_help() };
    help.to_string()
}

#[test]
fn the_short_help_of_a_command_fits_a_terminal_and_the_long_one_has_examples() {
    let mut root = Maitred::command();
    root.build();
    for command in root.get_subcommands() {
        let name = command.get_name();
        if command.is_hide_set() || name == "help" {
            continue;
        }
        let (short, long) = (help(command, false), help(command, true));
        let most = if ["bench", "tune"].contains(&name) { 48 } else { 24 };
        assert!(short.lines().count() <= most, "{name}:\n{short}");
        assert!(!short.contains("Example"), "{name}:\n{short}");
        assert!(long.contains("Example"), "{name}:\n{long}");
        assert!(long.to_lowercase().contains("exit code"), "{name}:\n{long}");
    }
}

#[test]
fn addresses_may_be_given_several_times_and_in_every_form() {
    let line = ["maitred", "serve", "--listen", ":80", "--listen", "127.0.0.1:81", "www"];
    let Command::Serve(serve) = Maitred::parse_from(line).command else { panic!("serve") };
    let read: Vec<String> = serve.listen.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(read, ["[::]:80", "127.0.0.1:81"]);
    assert_eq!(serve.dir, Some(PathBuf::from("www")));
}

#[test]
fn a_folder_and_a_configuration_exclude_each_other() {
    let line = ["maitred", "serve", "www", "--config", "maitred.toml"];
    assert!(Maitred::try_parse_from(line).is_err());
}

#[test]
fn a_php_version_is_two_or_three_numbers() {
    let reload = |php| Maitred::try_parse_from(["maitred", "reload", "--php", php]);
    assert!(["8.2", "8.10", "8.2.31"].iter().all(|php| reload(php).is_ok()));
    for php in ["", "foo", "8", "8.", "8.2.", ".2", "8.2.3.4", "php8.2", "8.2 "] {
        assert!(reload(php).is_err(), "{php}");
    }
}

#[test]
fn no_workers_and_too_many_workers_are_refused() {
    for workers in ["0", "-1", "10001", "many"] {
        assert!(Maitred::try_parse_from(["maitred", "serve", "--workers", workers]).is_err());
    }
}
