//! Structs of settings in which each field and its default are one line.

/// Defines a struct and its `Default` from fields of the form `pub name: Type = default`.
macro_rules! with_defaults {
    ($(#[$attribute:meta])* pub struct $name:ident {
        $($(#[$of_field:meta])* pub $field:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* }
            }
        }
    };
}

pub(crate) use with_defaults;
