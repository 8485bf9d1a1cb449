//! Whether a static file contains PHP source, by its first bytes.
//!
//! Names are not enough: `config.php.txt`, `wp-config.old` and `settings.inc` all contain
//! passwords. No I/O: the caller reads the file.

use crate::path::mentions_php;

/// Bytes at the beginning of a file that are checked.
pub const CHECKED_BYTES: usize = 512;

/// Whether files with this media type and name are checked: all but types that no browser shows as
/// text (images, audio, fonts, archives and so on).
pub fn may_be_source(name: &[u8], media_type: &str) -> bool {
    let (kind, of) = media_type.split_once('/').unwrap_or_default();
    let of = of.split(';').next().unwrap_or_default();
    match kind {
        "audio" | "font" | "video" => mentions_php(name),
        "image" => of == "svg+xml" || mentions_php(name),
        "application" => !is_binary(of) || mentions_php(name),
        _ => true,
    }
}

/// Known binary types of `application/`.
fn is_binary(of: &str) -> bool {
    const BINARY: [&str; 14] = [
        "gzip",
        "java-archive",
        "msword",
        "ogg",
        "pdf",
        "vnd.rar",
        "wasm",
        "x-7z-compressed",
        "x-bzip2",
        "x-gzip",
        "x-rar-compressed",
        "x-tar",
        "x-xz",
        "zip",
    ];
    let is_office = of.starts_with("vnd.openxmlformats-") || of.starts_with("vnd.oasis.");
    BINARY.contains(&of) || is_office || of.contains("font")
}

/// Whether a file is PHP source, by its first [`CHECKED_BYTES`] bytes.
///
/// Source starts with `<?php`, `<?=` or `<?` and code, after an optional byte order mark, white
/// space and a `#!` line. In a template, text may come first: then it counts except under file
/// names that often quote PHP, such as `readme.md` and `page.html`. A name that mentions PHP
/// (`header.php.txt`) is not exempt.
pub fn is_source(name: &[u8], beginning: &[u8]) -> bool {
    let beginning = &beginning[..beginning.len().min(CHECKED_BYTES)];
    if opens(behind_shebang(beginning), true) {
        return true;
    }
    if quotes_php(name) && !mentions_php(name) {
        return false;
    }
    // Random bytes contain `<?=` now and then, but never `<?php`.
    let is_text = !beginning.iter().any(|byte| is_binary_byte(*byte));
    let mut tags = memchr::memmem::find_iter(beginning, b"<?").map(|at| &beginning[at..]);
    tags.any(|tag| is_long_tag(tag) || (is_text && opens(tag, false)))
}

/// Names of documents, data files and programs in other languages, and names without an extension
/// (`README`).
fn quotes_php(name: &[u8]) -> bool {
    const ENDINGS: [&str; 47] = [
        "adoc", "asciidoc", "c", "cjs", "cpp", "css", "csv", "diff", "go", "h", "htm", "html",
        "ipynb", "java", "js", "json", "jsx", "less", "log", "map", "markdown", "md", "mjs", "org",
        "patch", "pl", "po", "pot", "py", "rb", "rs", "rst", "sass", "scss", "sh", "svelte", "tex",
        "text", "textile", "ts", "tsv", "tsx", "txt", "vue", "xhtml", "yaml", "yml",
    ];
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match memchr::memrchr(b'.', name) {
        Some(dot) => {
            let ending = &name[dot + 1..];
            ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known.as_bytes()))
        }
        None => true,
    }
}

fn is_binary_byte(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b)
}

/// Whether PHP starts here; `first`: at the beginning of the file, where the short tag counts, too.
fn opens(text: &[u8], first: bool) -> bool {
    is_long_tag(text) || text.starts_with(b"<?=") || (first && is_short_tag(text))
}

/// `<?` and code: not an XML processing instruction, which has a name and then white space or its
/// end (`<?xml version="1.0"?>`).
fn is_short_tag(text: &[u8]) -> bool {
    const STATEMENTS: [&str; 16] = [
        "class",
        "const",
        "define",
        "echo",
        "for",
        "foreach",
        "function",
        "global",
        "if",
        "include",
        "include_once",
        "print",
        "require",
        "require_once",
        "return",
        "switch",
    ];
    let Some(code) = text.strip_prefix(b"<?") else {
        return false;
    };
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:".contains(byte);
    let end = code.iter().position(|byte| !is_of_name(byte));
    let (name, rest) = code.split_at(end.unwrap_or(code.len()));
    if !name.first().is_some_and(u8::is_ascii_alphabetic) {
        return !code.is_empty();
    }
    let names = |word: &&str| name.eq_ignore_ascii_case(word.as_bytes());
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'?';
    STATEMENTS.iter().any(names) || !rest.first().is_none_or(is_end)
}

/// `<?php` in any case, and white space or the end.
fn is_long_tag(text: &[u8]) -> bool {
    let Some((tag, rest)) = text.split_at_checked(5) else {
        return false;
    };
    tag.eq_ignore_ascii_case(b"<?php") && rest.first().is_none_or(u8::is_ascii_whitespace)
}

fn behind_shebang(text: &[u8]) -> &[u8] {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = text.trim_ascii_start();
    match text.strip_prefix(b"#!") {
        Some(line) => {
            let end = memchr::memchr(b'\n', line).unwrap_or(line.len());
            line[end..].trim_ascii_start()
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_known_by_what_it_begins_with() {
        for source in [
            "<?php echo 1;",
            "<?PHP\n",
            "<?php",
            "\u{feff}<?php echo 1;",
            "\n\n  <?php echo 1;",
            "#!/usr/bin/env php\n<?php echo 1;",
            "<?= $x ?>",
            "<? echo 1;",
            "<?$db_password=\"x\";",
            "<?/**/ $db_password = 1;",
            "<?//x\n",
            "<?\\a\\b();",
            "<?define('DB_PASSWORD', 'x');",
            "<?PHP/**/",
            "<?include\"a.inc\";",
            "<?ECHO $x ?>",
            "<?include 'a.inc' ?>",
        ] {
            assert!(is_source(b"/a.txt", source.as_bytes()), "{source}");
        }
        for other in [
            "",
            "<",
            "<?",
            "<?xml version=\"1.0\"?>",
            "<?XML version=\"1.0\"?>",
            "<?xml-stylesheet href=\"a.xsl\"?>",
            "<?mso-application progid=\"Excel.Sheet\"?>",
            "<?import javafx.scene.control.*?>",
            "<?a:b?>",
            "<?phpinfo",
            "Write <?php in front.",
            "# Title\n\n```php\n<?php echo 1;\n```\n",
        ] {
            assert!(!is_source(b"/a.txt", other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_template_is_source_where_no_example_of_php_is_expected() {
        let template = b"<!DOCTYPE html>\n<html <?php language_attributes(); ?>>";
        for name in ["/a.inc", "/a.svg", "/a.b/c.tpl", "/header.php.txt"] {
            assert!(is_source(name.as_bytes(), template), "{name}");
        }
        for name in ["/a.md", "/a.js", "/a.JSON", "/a.b/README", "/a.patch", "/a.html"] {
            assert!(!is_source(name.as_bytes(), template), "{name}");
        }
        let far = [&[b' '; CHECKED_BYTES][..], b"x<?php "].concat();
        assert!(!is_source(b"/a.inc", &far));
    }

    #[test]
    fn bytes_that_are_no_text_are_source_by_the_long_tag_alone() {
        assert!(!is_source(b"/a.bin", b"\x00\x01<?= 1"));
        assert!(is_source(b"/a.bin", b"\x00\x01<?php "));
        assert!(is_source(b"/a.bin", b"<b><?= 1"));
    }

    #[test]
    fn pictures_and_archives_are_not_looked_at() {
        for (name, media_type, expected) in [
            (&b"/a.png"[..], "image/png", false),
            (b"/a.zip", "application/zip", false),
            (b"/a.woff2", "font/woff2", false),
            (b"/a.pdf", "application/pdf", false),
            (b"/a.docx", "application/vnd.openxmlformats-officedocument.x", false),
            (b"/a.svg", "image/svg+xml; charset=utf-8", true),
            (b"/a.php.png", "image/png", true),
            (b"/a.txt", "text/plain; charset=utf-8", true),
            (b"/a.sql", "application/x-sql", true),
            (b"/a.bak", "application/octet-stream", true),
        ] {
            assert_eq!(may_be_source(name, media_type), expected, "{media_type}");
        }
    }
}
