//! The reference page is what the directives say.

use std::path::Path;

#[test]
fn the_reference_page_is_what_the_directives_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    if std::env::var_os("MAITRED_WRITE_REFERENCE").is_some() {
        std::fs::write(&page, maitred_config::reference()).unwrap();
    }
    let written = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(
        written == maitred_config::reference(),
        "docs/reference/configuration.md is not what the directives say; run \
         MAITRED_WRITE_REFERENCE=1 cargo test -p maitred-config reference"
    );
}
