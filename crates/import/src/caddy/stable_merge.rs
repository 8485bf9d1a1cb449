//! Go's stable sort. Caddy's comparison of routes is no order of all of them, so that another sort
//! would have another result.

/// Longest part that is sorted by insertion.
const BLOCK: usize = 20;

/// Sorts as Go's `sort.SliceStable` does.
pub(super) fn sort_stable<T>(data: &mut [T], less: &impl Fn(&T, &T) -> bool) {
    data.chunks_mut(BLOCK).for_each(|block| insert_sorted(block, less));
    let mut length = BLOCK;
    while length < data.len() {
        for both in data.chunks_mut(2 * length).filter(|both| both.len() > length) {
            merge(both, length, less);
        }
        length *= 2;
    }
}

fn insert_sorted<T>(data: &mut [T], less: &impl Fn(&T, &T) -> bool) {
    for from in 1..data.len() {
        let mut at = from;
        while at > 0 && less(&data[at], &data[at - 1]) {
            data.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Merges the two sorted parts of a slice, of which the second one begins at `middle`.
fn merge<T>(data: &mut [T], middle: usize, less: &impl Fn(&T, &T) -> bool) {
    let length = data.len();
    if middle == 1 {
        let end = first(1, length, |at| !less(&data[at], &data[0]));
        return data[..end].rotate_left(1);
    }
    if length - middle == 1 {
        let begin = first(0, middle, |at| less(&data[middle], &data[at]));
        return data[begin..].rotate_right(1);
    }
    let half = length / 2;
    let sum = half + middle;
    let (low, high) = match middle > half {
        true => (sum - length, half),
        false => (0, middle),
    };
    let start = first(low, high, |at| less(&data[sum - 1 - at], &data[at]));
    let end = sum - start;
    if start < middle && middle < end {
        data[start..end].rotate_left(middle - start);
    }
    let (lower, upper) = data.split_at_mut(half);
    if 0 < start && start < half {
        merge(lower, start, less);
    }
    if half < end && end < length {
        merge(upper, end - half, less);
    }
}

/// The first number of a range that something holds for, by halving; its end without one.
fn first(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let half = usize::midpoint(low, high);
        match holds(half) {
            true => high = half,
            false => low = half + 1,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_items_stay_in_their_order() {
        for count in [0, 1, 2, 19, 20, 21, 41, 100, 333] {
            let mut data: Vec<(usize, usize)> = (0..count).map(|at| (at * 7919 % 13, at)).collect();
            let mut sorted = data.clone();
            sorted.sort();
            sort_stable(&mut data, &|one, other| one.0 < other.0);
            assert_eq!(data, sorted);
        }
    }
}
