//! Runs patterns that were compiled when this was generated, by keeping the set of places they can be at: the time is
//! in proportion to the text.

use serde::Deserialize;

#[derive(Deserialize)]
pub struct Program {
    /// Reads code points; otherwise UTF-16 units.
    unicode: bool,
    /// Sets of characters as ranges: low, high, low, high, …
    sets: Vec<Vec<u32>>,
    /// Instructions of three numbers each.
    code: Vec<u32>,
}

const CHAR: u32 = 0;
const SPLIT: u32 = 1;
const JUMP: u32 = 2;
const ASSERT: u32 = 3;
const LOOK: u32 = 4;

impl Program {
    /// Whether the pattern is found anywhere in the text. Without steps left it is not found.
    pub fn is_match(&self, text: &str, steps: &mut i64) -> bool {
        let units: Vec<u32> = if self.unicode {
            text.chars().map(u32::from).collect()
        } else {
            text.encode_utf16().map(u32::from).collect()
        };
        self.search(&units, 0, 0, true, steps)
    }

    fn search(&self, units: &[u32], entry: usize, from: usize, anywhere: bool, steps: &mut i64) -> bool {
        let size = self.code.len() / 3;
        let mut current: Vec<usize> = Vec::new();
        let mut marks = vec![usize::MAX; size];
        for at in from..=units.len() {
            if anywhere || at == from {
                current.push(entry);
            }
            // Everything that can be reached without reading on.
            let mut next = Vec::new();
            while let Some(place) = current.pop() {
                if marks[place] == at {
                    continue;
                }
                marks[place] = at;
                *steps -= 1;
                if *steps < 0 {
                    return false;
                }
                let (op, a, b) =
                    (self.code[place * 3], self.code[place * 3 + 1] as usize, self.code[place * 3 + 2] as usize);
                match op {
                    CHAR => {
                        if units.get(at).is_some_and(|unit| self.in_set(a, *unit)) {
                            next.push(place + 1);
                        }
                    }
                    SPLIT => current.extend([a, b]),
                    JUMP => current.push(a),
                    ASSERT => {
                        if holds(a, units, at) {
                            current.push(place + 1);
                        }
                    }
                    LOOK => {
                        if self.search(units, place + 1, at, false, steps) != (a == 1) {
                            current.push(b);
                        }
                    }
                    _ => return true,
                }
            }
            current = next;
            if current.is_empty() && !anywhere {
                return false;
            }
        }
        false
    }

    fn in_set(&self, set: usize, unit: u32) -> bool {
        let ranges = &self.sets[set];
        // The first range whose high end is not below; its low end decides.
        let (mut low, mut high) = (0, ranges.len() / 2);
        while low < high {
            let middle = (low + high) / 2;
            if ranges[middle * 2 + 1] < unit {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        ranges.get(low * 2).is_some_and(|start| *start <= unit)
    }
}

fn holds(kind: usize, units: &[u32], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|i| units.get(i)).copied();
    let after = units.get(at).copied();
    match kind {
        0 => before.is_none(),
        1 => after.is_none(),
        2 => before.map_or(true, is_line_end),
        3 => after.map_or(true, is_line_end),
        4 => before.is_some_and(is_word) != after.is_some_and(is_word),
        _ => before.is_some_and(is_word) == after.is_some_and(is_word),
    }
}

fn is_line_end(unit: u32) -> bool {
    matches!(unit, 0x0a | 0x0d | 0x2028 | 0x2029)
}

fn is_word(unit: u32) -> bool {
    char::from_u32(unit).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
}
