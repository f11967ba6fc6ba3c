//! How an overview reads: plain text, and on a terminal with colours and bars.

use std::fmt::{self, Write};

use crate::decide::rollout::overview::{Counts, Overview, Part, Problem, Verdict};

/// What the reader's screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Terminal,
}

#[derive(Clone, Copy)]
enum Colour {
    Green,
    Yellow,
    Red,
    Dim,
    Bold,
}

const BAR_CHARS: i32 = 40;

impl Style {
    fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Red => "31",
            Colour::Dim => "2",
            Colour::Bold => "1",
        };
        match self {
            Style::Plain => text.to_owned(),
            Style::Terminal => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn verdict(self, verdict: Verdict) -> String {
        let colour = match verdict {
            Verdict::Complete => Colour::Green,
            Verdict::Progressing | Verdict::Paused => Colour::Yellow,
            Verdict::Degraded | Verdict::Halted => Colour::Red,
        };
        self.paint(colour, verdict.word())
    }

    /// A place for each part of the nodes or pods; what is there at all has one at least.
    fn bar(self, counts: &Counts) -> String {
        let failed = counts.failed.min(counts.updating);
        let parts = [
            (counts.updated, '#', Colour::Green),
            (counts.updating - failed, '=', Colour::Yellow),
            (failed, '!', Colour::Red),
            (counts.held, '.', Colour::Dim),
        ];
        let places = |count: i32| {
            let share = i64::from(BAR_CHARS) * i64::from(count) / i64::from(counts.total.max(1));
            i32::try_from(share)
                .unwrap_or(BAR_CHARS)
                .max(i32::from(count > 0))
        };
        let (mut bar, mut left) = (String::new(), BAR_CHARS);
        let known: i32 = parts.iter().map(|(count, ..)| count).sum();
        let last = parts.iter().rposition(|(count, ..)| *count > 0);
        for (at, (count, sign, colour)) in parts.into_iter().enumerate() {
            // What rounding leaves is the last one's.
            let is_last = last == Some(at) && known >= counts.total;
            let places = if is_last {
                left
            } else {
                places(count).min(left)
            };
            left -= places;
            let places = sign.to_string().repeat(places.unsigned_abs() as usize);
            bar.push_str(&self.paint(colour, &places));
        }
        let rest = " ".repeat(left.unsigned_abs() as usize);
        format!("[{bar}{rest}]")
    }
}

impl Overview {
    pub fn screen(&self, style: Style) -> String {
        let mut screen = String::new();
        for part in &self.parts {
            part.show(&mut screen, style)
                .expect("writing to a String succeeds");
        }
        screen
    }

    /// A line on how far it is, where there is no screen to draw again.
    pub fn line(&self) -> String {
        let part = |part: &Part| {
            let counts = part.nodes.as_ref().or(part.pods.as_ref());
            let counts = counts.map(|counts| format!(": {counts}"));
            let counts = counts.unwrap_or_default();
            format!("{} {}{counts}", part.subject, part.verdict.word())
        };
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        parts.join("; ")
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            total,
            ready,
            updated,
            updating,
            held,
            failed,
        } = self;
        write!(
            f,
            "{updated} of {total} updated and ready, {updating} updating, {held} held, {failed} failed; {ready} of {total} ready in all"
        )
    }
}

impl Part {
    /// In a line: the first problem, or, without one, what it is.
    pub fn line(&self) -> String {
        let first = self.problems.first();
        let why = first.map_or_else(|| self.summary.clone(), Problem::why);
        format!("{}: {why}", self.verdict.word())
    }

    fn show(&self, out: &mut String, style: Style) -> fmt::Result {
        let subject = style.paint(Colour::Bold, &self.subject);
        let verdict = style.verdict(self.verdict);
        writeln!(out, "{subject}: {verdict}: {}", self.summary)?;
        let mut line = |name: &str, value: &str| writeln!(out, "  {name:<10} {value}");
        for (name, counts) in [("nodes", &self.nodes), ("pods", &self.pods)] {
            if let Some(counts) = counts {
                line(name, &counts.to_string())?;
                if style == Style::Terminal {
                    line("", &style.bar(counts))?;
                }
            }
        }
        if let Some(time) = &self.time {
            line("time", time)?;
        }
        for problem in &self.problems {
            line("why", &problem.why())?;
            if let Some(next) = &problem.next {
                line("next", next)?;
            }
        }
        Ok(())
    }
}

impl Problem {
    pub fn why(&self) -> String {
        let others = match self.count.and_then(|count| usize::try_from(count).ok()) {
            Some(count) if count > self.nodes.len() => ", ...",
            _ => "",
        };
        let nodes = match self.count {
            Some(count) => format!(" ({count}: {}{others})", self.nodes.join(", ")),
            None => String::new(),
        };
        format!("{}{nodes}: {}", self.reason, self.message)
    }
}
