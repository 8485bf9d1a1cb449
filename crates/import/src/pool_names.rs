//! Names of pools here: two pools of the old server never have one name.

/// Longest name of a pool, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// The name of a further pool, in letters of a name here. An equal one gets a number.
pub fn pool_name(name: &str, taken: &[&str]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    let mut number = 1;
    loop {
        let end = if number == 1 { String::new() } else { format!("-{number}") };
        let own: String = plain.chars().take(MAX_NAME_BYTES - end.len()).collect();
        let own = own + &end;
        if !taken.contains(&own.as_str()) {
            return own;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_name_gets_a_number() {
        assert_eq!(pool_name("shop.a", &[]), "shop-a");
        assert_eq!(pool_name("shop-a", &["shop-a"]), "shop-a-2");
        assert_eq!(pool_name("shop a", &["shop-a", "shop-a-2"]), "shop-a-3");
        let long = "x".repeat(40);
        let first = pool_name(&long, &[]);
        let second = pool_name(&long, &[&first]);
        assert_eq!((first.len(), second.len()), (32, 32));
        assert!(second.ends_with("x-2"), "{second}");
    }
}
