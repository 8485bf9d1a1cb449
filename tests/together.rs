//! All files of tests in one program, for `make test`: to build and to link one takes a fraction of
//! the time that 180 take. `scripts/test` starts it for each file, so that the tests of a file see
//! the descriptors and children of no others.

include!(concat!(env!("OUT_DIR"), "/together.rs"));
