//! Whatever a file of the cache holds, also one whose checksums are right: it is read or refused,
//! and what was read is written so that the same is read again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use maitred_pagestore::object::{Entry, FIRST_BYTES, head_bytes};

const ERA: u64 = 7;

/// The bytes with a beginning that says the truth about the rest.
fn sealed(bytes: &[u8], head: usize, kind: u8) -> Vec<u8> {
    let (head, body) = bytes.split_at(head.min(bytes.len()));
    let mut out = b"maitred\x02".to_vec();
    out.extend_from_slice(&ERA.to_le_bytes());
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(head).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    out.push(kind);
    assert_eq!(out.len(), FIRST_BYTES);
    out.extend_from_slice(head);
    out.extend_from_slice(body);
    out
}

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (head, kind, bytes) = input;
    let raw = Bytes::copy_from_slice(bytes);
    _ = head_bytes(&raw);
    _ = Entry::read_first(&raw, ERA);
    assert!(Entry::read(&raw, ERA).is_err() || raw.starts_with(b"maitred"));
    let file = Bytes::from(sealed(bytes, usize::from(head), kind % 4));
    assert!(Entry::read(&file, ERA + 1).is_err(), "of another era");
    let Ok((key, entry)) = Entry::read(&file, ERA) else {
        return;
    };
    assert!(Entry::read_first(&file, ERA).is_ok());
    let (head, body) = entry.write(&key, ERA);
    let again = Bytes::from([&head[..], &body[..]].concat());
    let (same_key, same) = Entry::read(&again, ERA).expect("what was written can be read");
    assert_eq!(key, same_key);
    match (&entry, &same) {
        (Entry::Page(one), Entry::Page(two)) => {
            assert_eq!((&one.subject, &one.stored), (&two.subject, &two.stored));
            assert_eq!(one.body[..], two.body[..]);
        }
        (Entry::Varies(one), Entry::Varies(two)) => assert_eq!(one, two),
        _ => panic!("it became another kind"),
    }
    for end in 0..file.len() {
        assert!(Entry::read(&file.slice(..end), ERA).is_err(), "cut at {end}");
    }
});
