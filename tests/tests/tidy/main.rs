//! The style of the sources, as a test: names, folders, sizes and words.
//!
//! A rule has no exemptions by count: a file that cannot keep it is named in the rule, with the
//! reason.
#![allow(clippy::unwrap_used)]

mod layers;
mod map;
mod names;
mod signatures;
mod source;
mod syntax;
mod text;

use source::{Tree, Violation};

fn check(rule: &str, find: fn(&Tree) -> Vec<Violation>) {
    let places: Vec<String> = find(Tree::get()).iter().map(Violation::to_string).collect();
    assert!(places.is_empty(), "{rule}:\n{}", places.join("\n"));
}

#[test]
fn a_line_has_at_most_100_columns() {
    check("columns", text::columns);
}

#[test]
fn a_file_has_at_most_600_lines() {
    check("lines", text::lines);
}

#[test]
fn comments_messages_and_docs_have_none_of_the_banned_words() {
    check("words", text::words);
}

#[test]
fn no_parameter_of_a_function_is_a_tuple_pattern() {
    check("tuples", signatures::tuples);
}

#[test]
fn a_function_that_is_no_constructor_has_at_most_5_arguments() {
    check("arguments", signatures::arguments);
}

#[test]
fn a_type_name_is_unique_within_its_crate() {
    check("types", names::types);
}

#[test]
fn a_file_name_means_one_thing_in_the_workspace() {
    check("files", names::files);
}

#[test]
fn imports_run_down_the_folders_of_front_and_supervisor() {
    check("layers", layers::upward);
}

#[test]
fn a_crate_of_layers_has_at_most_18_modules_at_its_top() {
    check("top", layers::top);
}

#[test]
fn what_architecture_md_names_exists() {
    check("map", map::missing);
}

#[test]
fn the_tests_that_the_threat_model_names_exist() {
    check("tests", map::missing_tests);
}
