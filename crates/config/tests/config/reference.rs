//! The reference pages are up to date with the directives and the presets.

use std::path::Path;

fn is_what_the_code_says(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    if std::env::var_os("MAITRED_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/{page} is not what the code says; run MAITRED_WRITE_REFERENCE=1 cargo test -p \
         maitred-config reference"
    );
}

#[test]
fn the_reference_page_is_what_the_directives_say() {
    is_what_the_code_says("reference/configuration.md", &maitred_config::reference());
}

#[test]
fn the_page_of_applications_is_what_their_presets_say() {
    is_what_the_code_says("guide/applications.md", &maitred_config::applications());
}
