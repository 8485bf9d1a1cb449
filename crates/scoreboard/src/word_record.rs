//! Structs that are stored in consecutive words of the page.

/// A value that fits one word. 0 stands for its default.
pub(crate) trait Word {
    /// Its word.
    fn to_word(self) -> u64;
    /// The value of a word.
    fn from_word(word: u64) -> Self;
}

impl Word for u64 {
    fn to_word(self) -> u64 {
        self
    }

    fn from_word(word: u64) -> u64 {
        word
    }
}

/// `Some` is stored as one more than its value.
impl Word for Option<u64> {
    fn to_word(self) -> u64 {
        self.map_or(0, |value| value.saturating_add(1))
    }

    fn from_word(word: u64) -> Option<u64> {
        word.checked_sub(1)
    }
}

/// A struct with one word for each field, in the order in which they are declared.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)+ }

        impl $name {
            pub(crate) const WORDS: usize = [$(stringify!($field)),+].len();

            pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
                [$($crate::word_record::Word::to_word(self.$field)),+]
            }

            pub(crate) fn from_words([$($field),+]: [u64; Self::WORDS]) -> $name {
                $name { $($field: $crate::word_record::Word::from_word($field),)+ }
            }
        }
    };
}

pub(crate) use record;
