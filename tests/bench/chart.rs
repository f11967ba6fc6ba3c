//! A chart of growth, as an SVG: lines over the sizes of fleets.

use std::fmt::Write;

/// One line: its name, and a value for each size of a fleet.
pub struct Line {
    pub name: String,
    pub points: Vec<(usize, f64)>,
}

pub struct Panel {
    pub title: String,
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 40.0;
const PLOT_WIDTH: f64 = 340.0;
const PLOT_HEIGHT: f64 = 160.0;
const STEPS: u32 = 4;
/// The colours of Okabe and Ito, which people with colour blindness can distinguish, and a pattern of dashes for each.
const STYLES: [(&str, &str); 4] = [
    ("#0072b2", "none"),
    ("#d55e00", "6 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "9 3 2 3"),
];

/// The panels side by side. The horizontal axis is logarithmic; the vertical one begins at 0.
pub fn svg(panels: &[Panel]) -> String {
    let width = WIDTH * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, panel) in panels.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<g transform=\"translate({}, 0)\">",
            WIDTH * number as f64
        );
        draw(panel, &mut svg);
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

fn draw(panel: &Panel, svg: &mut String) {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let mut sizes: Vec<usize> = points().map(|(size, _)| *size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (Some(least), Some(most)) = (sizes.first(), sizes.last()) else {
        return;
    };
    let (from, to) = ((*least as f64).ln(), (*most as f64).ln());
    let x = |size: usize| LEFT + PLOT_WIDTH * ((size as f64).ln() - from) / (to - from).max(1.0);
    let highest = points().map(|(_, value)| *value).fold(0.0, f64::max);
    let step = step_of(highest / f64::from(STEPS));
    let y = |value: f64| TOP + PLOT_HEIGHT * (1.0 - value / (step * f64::from(STEPS)));
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{}</text>",
        panel.title
    );
    for number in 0..=STEPS {
        let value = step * f64::from(number);
        let (y, right) = (y(value), LEFT + PLOT_WIDTH);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for size in &sizes {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{size}</text>",
            x(*size),
            TOP + PLOT_HEIGHT + 18.0
        );
    }
    for (number, line) in panel.lines.iter().enumerate() {
        let (colour, dashes) = STYLES[number % STYLES.len()];
        let style = format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"");
        let points = line.points.iter();
        let points = points.map(|(size, value)| format!("{:.1},{:.1}", x(*size), y(*value)));
        let points = points.collect::<Vec<_>>().join(" ");
        let (left, top) = (
            LEFT + 170.0 * (number % 2) as f64,
            TOP + PLOT_HEIGHT + 42.0 + 20.0 * (number / 2) as f64,
        );
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" {style}/>\n<path d=\"M{left} {top}h24\" {style}/><text x=\"{}\" y=\"{}\">{}</text>",
            left + 30.0,
            top + 4.0,
            line.name
        );
    }
}

/// The least of 1, 2, 2.5 and 5 times a power of ten that is not less.
fn step_of(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= least);
    step.unwrap_or(10.0 * power)
}
