//! `include`: several files as one configuration, and the mistakes of each with its name.

use crate::folder::Folder;

const ALL: &str = "include = \"sites/*.toml\"\n";

fn site(name: &str) -> String {
    format!(
        "[pools.{name}]\nmax_children = 2\n[[sites]]\nhosts = \"{name}.test\"\n\
         root = \"../public\"\npool = \"{name}\"\n"
    )
}

#[track_caller]
fn refused(folder: &Folder, text: &str, mistakes: &[&str]) {
    assert_eq!(folder.mistakes(text), mistakes.join("\n"), "{text}");
}

#[test]
fn sites_and_pools_of_included_files_are_read_in_the_order_of_the_names() {
    let folder = Folder::new();
    folder.write("sites/b.toml", &site("b"));
    folder.write("sites/a.toml", &site("a"));
    folder.write("sites/.c.toml", "is not read");
    folder.write("sites/C.TOML", "is not read");
    folder.write("sites/d.toml.bak", "is not read");
    folder.write("sites/e.toml/x", "is not read, since e.toml is a folder");
    let config = folder.good(&format!("{ALL}[[sites]]\nroot = \"public\"\npool = \"a\"\n"));
    let hosts: Vec<String> = config.sites.iter().map(|site| site.hosts[0].to_string()).collect();
    assert_eq!(hosts, ["*", "a.test", "b.test"]);
    let roots = config.sites.iter().map(|site| site.root.canonicalize().unwrap());
    let public = folder.path().join("public").canonicalize().unwrap();
    assert!(roots.into_iter().all(|root| root == public), "each from its own folder");
    let pools: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(pools, ["a", "b"]);
}

#[test]
fn a_file_that_two_patterns_match_is_read_once_and_includes_others() {
    let folder = Folder::new();
    folder.write("sites/a.toml", &site("a"));
    folder.write("sites/b.toml", &format!("include = [\"more/c.toml\"]\n{}", site("b")));
    folder.write("sites/more/c.toml", &site("c").replace("../", "../../"));
    let text = "include = [\"sites/*.toml\", \"sites/a.toml\", \"none/*.toml\"]\n";
    let config = folder.good(text);
    assert_eq!(config.sites.len(), 3);
    let file = folder.path().join("maitred.toml");
    std::fs::write(&file, text).unwrap();
    let files = maitred_config::load_with_remarks(&file).unwrap().files;
    let names = ["maitred.toml", "sites/a.toml", "sites/b.toml", "sites/more/c.toml"];
    assert_eq!(files, names.map(|name| folder.path().join(name)));
}

#[test]
fn a_mistake_of_an_included_file_names_that_file_with_line_and_column() {
    let folder = Folder::new();
    folder.write("sites/a.toml", &site("a").replace("max_children = 2", "max_childen = 2"));
    folder.write("sites/b.toml", "[[sites]]\nhosts = \"b.test\"\nroot = 5\npool = \"c\"\n");
    refused(
        &folder,
        &format!("{ALL}access_log = 5\n"),
        &[
            "maitred.toml:2:14: `access_log` is the number 5; expected a path, \"stderr\", \
             \"syslog\", \"journald\" or \"off\"",
            "DIR/sites/a.toml:2:1: unknown setting `max_childen` in [pools.a]; did you mean \
             `max_children`?",
            "DIR/sites/b.toml:3:8: `root` is the number 5; expected the path of a directory",
            "DIR/sites/b.toml:4:8: `pool` is \"c\", but there is no pool of that name; did you \
             mean \"a\"?",
        ],
    );
    folder.write("sites/a.toml", "[[sites]]\nroot = /srv\n");
    folder.write("sites/b.toml", "x = [\n");
    let found = folder.mistakes(ALL);
    let expected = "DIR/sites/a.toml:2:8: `/srv` is a text; expected \"/srv\", with quotation \
                    marks\nDIR/sites/b.toml:";
    assert!(found.starts_with(expected), "all files that are no TOML: {found}");
}

#[test]
fn two_files_with_the_same_pool_or_host_are_named_in_one_sentence() {
    let folder = Folder::new();
    folder.write("sites/a.toml", &site("a"));
    folder.write("sites/b.toml", &site("a"));
    refused(
        &folder,
        ALL,
        &[
            "DIR/sites/b.toml:1:8: the pool `a` is defined at DIR/sites/a.toml:1:8 already; rename \
             one of the two, or leave it out",
            "DIR/sites/b.toml:4:9: `hosts` has \"a.test\", which the site at \
             DIR/sites/a.toml:4:9 has too; leave it out of one",
        ],
    );
}

#[test]
fn a_loop_is_refused() {
    let folder = Folder::new();
    let own = folder.path().join("maitred.toml");
    folder.write("sites/a.toml", "include = [\"b.toml\"]\n");
    folder.write("sites/b.toml", "include = \"../maitred.toml\"\n");
    folder.write("maitred.toml", ALL);
    refused(
        &folder,
        ALL,
        &["DIR/sites/b.toml:1:11: `include` has \"../maitred.toml\", which leads to \
           DIR/sites/../maitred.toml again, a loop; leave one `include` out"],
    );
    let itself = "include = \"*.toml\"\n";
    std::fs::write(&own, itself).unwrap();
    let found = folder.mistakes(itself);
    assert!(found.contains("which leads to maitred.toml again, a loop"), "{found}");
}

#[test]
fn files_that_cannot_be_read_and_files_too_deep_are_refused() {
    let folder = Folder::new();
    folder.write("sites/a/x", "");
    folder.write("latin.toml", "");
    std::fs::write(folder.path().join("latin.toml"), b"# a\n# \xe9\n").unwrap();
    refused(
        &folder,
        "include = [\"sites/a\", \"latin.toml\", \"[\"]\n",
        &[
            "maitred.toml:1:12: `include` has \"sites/a\", but DIR/sites/a is a directory; name a \
             file",
            "maitred.toml:1:23: `include` has \"latin.toml\", but DIR/latin.toml has a byte in \
             line 2 that is not UTF-8; save the file as UTF-8 text",
            "maitred.toml:1:37: `include` has \"[\", which is no pattern of paths: invalid range \
             pattern",
        ],
    );
    for depth in 1..10 {
        folder.write(&format!("{depth}.toml"), &format!("include = \"{}.toml\"\n", depth + 1));
    }
    refused(
        &folder,
        "include = \"1.toml\"\n",
        &["DIR/7.toml:1:11: `include` has \"8.toml\", which includes deeper than 8 files; \
           include fewer"],
    );
}

#[test]
fn settings_of_the_whole_server_are_refused_in_an_included_file() {
    let folder = Folder::new();
    let text = "listen = \":80\"\ninclude = 5\nfoo = 1\nsites = 1\n[pool_defaults]\n[tls]\n\
                hsts = \"1d\"\n";
    folder.write("sites/a.toml", text);
    refused(
        &folder,
        &format!("{ALL}[[sites]]\nroot = \"public\"\n"),
        &[
            "DIR/sites/a.toml:1:1: `listen` is a setting of the whole server; write it in \
             maitred.toml, which includes this file",
            "DIR/sites/a.toml:2:11: `include` is the number 5; expected a path or a pattern such \
             as \"sites/*.toml\", or an array of them",
            "DIR/sites/a.toml:3:1: unknown setting `foo` in an included file; expected `include`, \
             [pools.NAME], [[sites]], or [tls] with `certificates`",
            "DIR/sites/a.toml:4:1: `sites` is not a list of sites; write [[sites]], with two \
             brackets, before the settings of each site",
            "DIR/sites/a.toml:5:2: `pool_defaults` is a setting of the whole server; write it in \
             maitred.toml, which includes this file",
            "DIR/sites/a.toml:7:1: `hsts` of [tls] is a setting of the whole server; write it in \
             maitred.toml, and here `certificates` alone",
        ],
    );
}

#[test]
fn certificates_of_included_files_are_added_to_those_of_the_first() {
    let folder = Folder::new();
    let one = "[tls]\ncertificates = { cert = \"../clients.pem\", key = \"../site.key\" }\n";
    folder.write("sites/a.toml", one);
    let sites = "[[sites]]\nroot = \"public\"\n";
    let config = folder.good(&format!("{ALL}{sites}"));
    assert_eq!(config.tls.unwrap().certificates.len(), 1);
    let first = "[tls]\ncertificates = { cert = \"site.pem\", key = \"site.key\" }\n";
    let tls = folder.good(&format!("{ALL}{first}{sites}")).tls.unwrap();
    let files: Vec<_> = tls.certificates.iter().map(|of| of.cert.canonicalize().unwrap()).collect();
    let expected = ["site.pem", "clients.pem"];
    assert_eq!(files, expected.map(|name| folder.path().join(name).canonicalize().unwrap()));
}
