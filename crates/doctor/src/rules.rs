//! The rules of the tuning articles.
