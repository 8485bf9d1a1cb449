//! Sitemaps (sitemaps.org, version 0.9): lists of URLs as XML, indexes of such lists, and plain
//! text, each of them also compressed with gzip.

use std::io::Read;

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};
use quick_xml::reader::Reader;

use crate::trimmed;

/// The largest sitemap in bytes, uncompressed: the protocol's limit.
pub const MAX_BYTES: usize = 50 * 1024 * 1024;
/// Most URLs of a sitemap: the protocol's limit.
pub const MAX_ADDRESSES: usize = 50_000;
/// Most URLs of a list that is no sitemap.
pub const MAX_LISTED: usize = 1_000_000;
/// The longest URL in bytes; the protocol has 2048.
const MAX_ADDRESS_BYTES: usize = 8 * 1024;

/// The contents of a sitemap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sitemap {
    /// URLs of pages.
    pub pages: Vec<String>,
    /// URLs of further sitemaps.
    pub further: Vec<String>,
}

impl Sitemap {
    /// Parses a sitemap.
    ///
    /// # Errors
    /// A message that says what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Sitemap, String> {
        let unpacked;
        let mut bytes = bytes;
        if bytes.starts_with(b"\x1f\x8b") {
            unpacked = unpack(bytes)?;
            bytes = &unpacked;
        }
        if bytes.len() > MAX_BYTES {
            return Err(format!("it is longer than {MAX_BYTES} bytes"));
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            Some(b'<') => read_xml(bytes),
            _ => read_text(bytes, MAX_ADDRESSES),
        }
    }

    /// Parses a list: one URL a line; empty lines and those that start with `#` are ignored.
    ///
    /// # Errors
    /// A message that says what is wrong with it.
    pub fn list(bytes: &[u8]) -> Result<Sitemap, String> {
        read_text(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes), MAX_LISTED)
    }

    fn add(&mut self, within: EntryKind, address: &str, most: usize) -> Result<(), String> {
        let Some(address) = trimmed(address) else {
            return Ok(());
        };
        if address.len() > MAX_ADDRESS_BYTES {
            return Err(format!("an address is longer than {MAX_ADDRESS_BYTES} bytes"));
        }
        let list = match within {
            EntryKind::Page => &mut self.pages,
            EntryKind::Sitemap => &mut self.further,
        };
        list.push(address.to_owned());
        if list.len() > most { Err(format!("it lists more than {most} addresses")) } else { Ok(()) }
    }
}

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    let read = flate2::read::MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut unpacked);
    read.map_err(|why| format!("it cannot be decompressed: {why}"))?;
    Ok(unpacked)
}

fn read_text(bytes: &[u8], most: usize) -> Result<Sitemap, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let mut sitemap = Sitemap::default();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        sitemap.add(EntryKind::Page, line, most)?;
    }
    Ok(sitemap)
}

/// The kind of URL in a `loc` element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Page,
    Sitemap,
}

fn read_xml(bytes: &[u8]) -> Result<Sitemap, String> {
    let mut reader = Reader::from_reader(bytes);
    let mut sitemap = Sitemap::default();
    let (mut within, mut address) = (None, None::<String>);
    loop {
        let event = reader.read_event().map_err(|why| not_xml(&why))?;
        match event {
            Event::Start(start) => match start.local_name().as_ref() {
                b"url" => within = Some(EntryKind::Page),
                b"sitemap" => within = Some(EntryKind::Sitemap),
                b"loc" if start.name().prefix().is_none() => {
                    address = within.map(|_| String::new())
                }
                _ => {}
            },
            Event::End(end) => match end.local_name().as_ref() {
                b"url" | b"sitemap" => within = None,
                b"loc" => {
                    if let (Some(within), Some(address)) = (within, address.take()) {
                        sitemap.add(within, &address, MAX_ADDRESSES)?;
                    }
                }
                _ => {}
            },
            Event::Text(text) => {
                if let Some(address) = &mut address {
                    address.push_str(&text.decode().map_err(|why| not_xml(&why))?);
                }
            }
            Event::CData(text) => {
                if let Some(address) = &mut address {
                    address.push_str(&text.decode().map_err(|why| not_xml(&why))?);
                }
            }
            Event::GeneralRef(entity) => {
                if let Some(address) = &mut address {
                    resolve(&entity, address)?;
                }
            }
            Event::Eof => break,
            _ => {}
        }
        if address.as_ref().is_some_and(|one| one.len() > MAX_ADDRESS_BYTES) {
            return Err(format!("an address is longer than {MAX_ADDRESS_BYTES} bytes"));
        }
    }
    match sitemap {
        Sitemap { pages, further } if pages.is_empty() && further.is_empty() => {
            Err("it is no sitemap: there is no <url> and no <sitemap> with a <loc>".to_owned())
        }
        sitemap => Ok(sitemap),
    }
}

/// Only the predefined entities; others are dropped.
fn resolve(entity: &BytesRef<'_>, into: &mut String) -> Result<(), String> {
    let character = entity.resolve_char_ref().map_err(|why| not_xml(&why))?;
    if let Some(character) = character {
        into.push(character);
        return Ok(());
    }
    let name = entity.decode().map_err(|why| not_xml(&why))?;
    let text = resolve_predefined_entity(&name)
        .ok_or_else(|| format!("it uses the entity &{name};, which XML does not have"))?;
    into.push_str(text);
    Ok(())
}

fn not_xml(why: &dyn std::fmt::Display) -> String {
    format!("it is no sitemap: {why}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const PAGES: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
        <!-- a comment --><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
        <url><loc> https://a.example/?a=1&amp;b=&#50; </loc><priority>0.5</priority>
        <image:image><image:loc>https://a.example/x.png</image:loc></image:image></url>
        <url><loc><![CDATA[https://a.example/c?d&e]]></loc></url></urlset>"#;

    #[test]
    fn pages_are_listed_with_entities_and_without_their_pictures() {
        let read = Sitemap::read(PAGES.as_bytes()).unwrap();
        assert_eq!(read.pages, ["https://a.example/?a=1&b=2", "https://a.example/c?d&e"]);
        assert!(read.further.is_empty());
    }

    #[test]
    fn an_index_lists_further_sitemaps() {
        let index = "<sitemapindex><sitemap><loc>https://a.example/s1.xml</loc></sitemap>\
                     <sitemap><loc>https://a.example/s2.xml.gz</loc></sitemap></sitemapindex>";
        let read = Sitemap::read(index.as_bytes()).unwrap();
        assert_eq!(read.further.len(), 2);
        assert!(read.pages.is_empty());
    }

    #[test]
    fn one_may_be_compressed_and_one_may_be_text() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(PAGES.as_bytes()).unwrap();
        let read = Sitemap::read(&packed.finish().unwrap()).unwrap();
        assert_eq!(read.pages.len(), 2);
        let text = "\u{feff}https://a.example/\r\n\n# not this one\nhttps://a.example/b\n";
        let read = Sitemap::read(text.as_bytes()).unwrap();
        assert_eq!(read.pages, ["https://a.example/", "https://a.example/b"]);
    }

    #[test]
    fn what_is_no_sitemap_or_too_large_is_refused_in_a_sentence() {
        let wrong = |bytes: &[u8]| Sitemap::read(bytes).unwrap_err();
        assert!(wrong(b"<html><body>Not found</body></html>").contains("no sitemap"));
        assert!(wrong(b"<urlset><url><loc>x</url>").contains("no sitemap"));
        assert!(wrong(b"\xff\xfe").contains("UTF-8"));
        let entity = b"<!DOCTYPE u [<!ENTITY x 'y'>]><urlset><url><loc>&x;</loc></url></urlset>";
        assert!(wrong(entity).contains("&x;"));
        let many = "a\n".repeat(MAX_ADDRESSES + 1);
        assert!(wrong(many.as_bytes()).contains("more than"));
        assert_eq!(Sitemap::list(many.as_bytes()).unwrap().pages.len(), MAX_ADDRESSES + 1);
        let long = format!("<urlset><url><loc>{}", "x".repeat(10_000));
        assert!(wrong(long.as_bytes()).contains("longer"));
        assert!(wrong(b"\x1f\x8bnothing").contains("decompressed"));
    }
}
