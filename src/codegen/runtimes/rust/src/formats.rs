//! Formats that need more than an expression: dates and times of RFC 3339, host names of RFC 1123.

/// Whether a text is of a format. Formats that are not listed accept every text.
pub fn format_fits(name: &str, text: &str) -> bool {
    match name {
        "date" => day_of(text).is_some(),
        "time" => time_of(text).is_some(),
        "date-time" => is_date_time(text).unwrap_or(false),
        "iso-time" => is_iso_time(text),
        "iso-date-time" => {
            let parts: Vec<&str> = text.split(|c: char| c == 't' || c == 'T' || is_js_space(c)).collect();
            parts.len() == 2 && day_of(parts[0]).is_some() && is_iso_time(parts[1])
        }
        "hostname" => text.len() <= 253 && text.split('.').all(is_label),
        _ => true,
    }
}

fn is_js_space(c: char) -> bool {
    c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}')
}

fn digits(text: &str) -> Option<i32> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// A day of the calendar: whether the next one is the first of a month, and whether this one is.
struct Day {
    is_last: bool,
    is_first: bool,
}

/// A full-date of RFC 3339.
fn day_of(text: &str) -> Option<Day> {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return None };
    if (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    let (year, month, day) = (digits(year)?, digits(month)?, digits(day)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    (1..=days).contains(&day).then_some(Day { is_last: day == days, is_first: day == 1 })
}

/// The parts of a time that both notations share.
struct Time<'a> {
    hour: i32,
    minute: i32,
    second: i32,
    zone: &'a str,
}

fn time_parts(text: &str) -> Option<Time<'_>> {
    if !text.is_ascii() || text.len() < 8 || text.as_bytes()[2] != b':' || text.as_bytes()[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (digits(&text[0..2])?, digits(&text[3..5])?, digits(&text[6..8])?);
    let mut zone = &text[8..];
    if let Some(fraction) = zone.strip_prefix('.') {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        if end == 0 {
            return None;
        }
        zone = &fraction[end..];
    }
    Some(Time { hour, minute, second, zone })
}

/// Hours and minutes to subtract for UTC, both with their sign.
fn offset_of(zone: &str) -> Option<(i32, i32)> {
    if zone == "z" || zone == "Z" {
        return Some((0, 0));
    }
    let sign = match zone.as_bytes().first()? {
        b'-' => -1,
        b'+' => 1,
        _ => return None,
    };
    let minutes = zone.get(3..)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let hour = digits(zone.get(1..3)?)?;
    let minute = match (minutes.len(), zone.len()) {
        (0, 3) => 0,
        (2, _) => digits(minutes)?,
        _ => return None,
    };
    (hour <= 23 && minute <= 59).then_some((sign * hour, sign * minute))
}

/// A full-time of RFC 3339: minutes after midnight in UTC, and whether it is a leap second, the last second of a day in UTC.
fn time_of(text: &str) -> Option<(i32, bool)> {
    let Time { hour, minute, second, zone } = time_parts(text)?;
    let (zone_hour, zone_minute) = offset_of(zone).filter(|_| zone.len() == 1 || zone.len() == 6)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let utc = (hour - zone_hour) * 60 + minute - zone_minute;
    let leap = second == 60;
    (!leap || utc.rem_euclid(1440) == 1439).then_some((utc, leap))
}

fn is_date_time(text: &str) -> Option<bool> {
    if !matches!(text.as_bytes().get(10)?, b'T' | b't') {
        return None;
    }
    let day = day_of(text.get(..10)?)?;
    let (utc, leap) = time_of(text.get(11..)?)?;
    // Leap seconds are added at the end of a month.
    let ends_month = match utc.div_euclid(1440) {
        0 => day.is_last,
        -1 => day.is_first,
        _ => false,
    };
    Some(!leap || ends_month)
}

fn is_iso_time(text: &str) -> bool {
    let Some(Time { hour, minute, second, zone }) = time_parts(text) else { return false };
    let Some((zone_hour, zone_minute)) = (if zone.is_empty() { Some((0, 0)) } else { offset_of(zone) }) else {
        return false;
    };
    if hour <= 23 && minute <= 59 && second < 60 {
        return true;
    }
    // A leap second stands at the end of a day in UTC.
    let utc_minute = minute - zone_minute;
    let utc_hour = hour - zone_hour - i32::from(utc_minute < 0);
    (utc_hour == 23 || utc_hour == -1) && (utc_minute == 59 || utc_minute == -1) && second < 61
}

/// A label of RFC 1123. Two hyphens in the third and fourth place are for internationalized labels alone (RFC 5890).
fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inside = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    if bytes.len() > 63 || !inside || !ends(bytes.first()) || !ends(bytes.last()) {
        return false;
    }
    if bytes.get(2..4) != Some(b"--") {
        return true;
    }
    bytes[..2].eq_ignore_ascii_case(b"xn") && is_punycode(&bytes[4..])
}

/// Punycode of RFC 3492 with at least one character that is not ASCII, and none that is a control, a space or upper case.
/// Which other characters Unicode leaves out of names is not known here.
fn is_punycode(text: &[u8]) -> bool {
    let (basic, rest) = match text.iter().rposition(|byte| *byte == b'-') {
        Some(at) => (at as u32, &text[at + 1..]),
        None => (0, text),
    };
    let (mut code, mut i, mut bias, mut length) = (128_u32, 0_u32, 72_u32, basic);
    let mut digits = rest.iter();
    while digits.as_slice().first().is_some() {
        let (before, mut weight, mut k) = (i, 1_u32, 36_u32);
        loop {
            let digit = match digits.next() {
                Some(byte @ b'0'..=b'9') => u32::from(byte - b'0') + 26,
                Some(byte) => u32::from(byte.to_ascii_lowercase() - b'a'),
                None => return false,
            };
            let Some(sum) = digit.checked_mul(weight).and_then(|step| i.checked_add(step)) else { return false };
            i = sum;
            let threshold = k.saturating_sub(bias).clamp(1, 26);
            if digit < threshold {
                break;
            }
            let Some(heavier) = weight.checked_mul(36 - threshold) else { return false };
            weight = heavier;
            k += 36;
        }
        length += 1;
        let mut delta = if before == 0 { i / 700 } else { (i - before) / 2 };
        delta += delta / length;
        let mut steps = 0;
        while delta > 455 {
            delta /= 35;
            steps += 36;
        }
        bias = steps + 36 * delta / (delta + 38);
        code = code.saturating_add(i / length);
        let Some(c) = char::from_u32(code) else { return false };
        if c.is_control() || c.is_whitespace() || !c.to_lowercase().eq([c]) {
            return false;
        }
        i = i % length + 1;
    }
    length > basic
}
