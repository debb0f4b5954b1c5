//! Draws the trace as a picture with one row per block.
//!
//! No system font is needed: the letters come from the crate `embedded-graphics`.

mod canvas;
mod palette;
mod rows;

use crate::{Meta, Span, Trace};
use canvas::{Canvas, TEXT_HEIGHT, TEXT_WIDTH, TITLE_HEIGHT, TITLE_WIDTH};
use monolith_abi::Role;
use palette::{INK, LINE, QUIET, SURFACE, Shade};
use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoFont, LabelAreaPosition,
    TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor};
use rows::{Window, row};
use std::convert::Infallible;

/// What to draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GanttOptions {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Start and end of the shown window, in nanoseconds after the token's start; if none, the
    /// whole token.
    pub window: Option<(u64, u64)>,
}

impl Default for GanttOptions {
    fn default() -> GanttOptions {
        GanttOptions { width: 1600, height: 1000, window: None }
    }
}

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GanttError {
    /// There is less than one pixel for each block.
    #[error(
        "{width} x {height} pixels do not hold this trace: ask for at least {min_width} x \
         {min_height}"
    )]
    TooSmall {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The smallest width.
        min_width: u32,
        /// The smallest height.
        min_height: u32,
    },
    /// Too many pixels.
    #[error("{width} x {height} pixels are too many: ask for at most {MAX_SIDE} x {MAX_SIDE}")]
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// A window outside the token.
    #[error(
        "the window from {begin_ns} to {end_ns} ns shows nothing: it must begin before its own end \
         and before the token's end at {token_ns} ns"
    )]
    EmptyWindow {
        /// Its begin.
        begin_ns: u64,
        /// Its end.
        end_ns: u64,
        /// End of the token.
        token_ns: u64,
    },
    /// The drawing library refused.
    #[error("cannot draw the picture: {0}")]
    Draw(String),
    /// The PNG encoder refused.
    #[error("cannot encode the picture as PNG: {0}")]
    Encode(String),
}

impl From<DrawingAreaErrorKind<Infallible>> for GanttError {
    fn from(error: DrawingAreaErrorKind<Infallible>) -> GanttError {
        GanttError::Draw(error.to_string())
    }
}

/// Longest side, in pixels.
const MAX_SIDE: u32 = 8192;
const MIN_WIDTH: u32 = 320;
/// Margin around everything.
const PAD: u32 = 8;
/// Width for the names of blocks, left of the rows.
const MARGIN: u32 = 11 * TEXT_WIDTH;
/// Height for the axis, below the rows.
const AXIS: u32 = 3 * TEXT_HEIGHT;
const LEGEND_LINE: u32 = TEXT_HEIGHT + 6;
const SWATCH: u32 = 18;

type Area<'a> = DrawingArea<Canvas<'a>, Shift>;

/// Draws the trace as a PNG: what each block's consumers did over time. A pixel shows what took
/// most of its time. Work has its phase's colour and a wait its kind's pattern, as on the page;
/// time without a span is blank.
///
/// # Errors
/// A size or a window that shows nothing.
pub fn gantt(trace: &Trace, options: &GanttOptions) -> Result<Vec<u8>, GanttError> {
    let &GanttOptions { width, height, .. } = options;
    let window = window(trace, options)?;
    let legend = Legend::of(trace, width);
    let top = 2 * PAD + TITLE_HEIGHT + legend.height();
    check_size(trace, options, top)?;
    let mut rgb = vec![0; 3 * width as usize * height as usize];
    {
        let area = Canvas::new(width, height, &mut rgb).into_drawing_area();
        area.fill(&SURFACE)?;
        let title = text_style(TITLE_HEIGHT, INK, HPos::Left, VPos::Top);
        let room = ((width - 2 * PAD) / TITLE_WIDTH) as usize;
        area.draw_text(&shortened(title_of(trace.meta()), room), &title, at(PAD, PAD))?;
        legend.draw(&area)?;
        draw_chart(&area.margin(top, 0, 0, 2 * PAD), &area, trace, window)?;
        area.present()?;
    }
    canvas::png(width, height, &rgb)
}

fn at(x: u32, y: u32) -> (i32, i32) {
    (x as i32, y as i32)
}

fn window(trace: &Trace, options: &GanttOptions) -> Result<Window, GanttError> {
    let token_ns = trace.meta().token_ns;
    let (begin_ns, end_ns) = options.window.unwrap_or((0, token_ns));
    if begin_ns < end_ns && begin_ns < token_ns {
        Ok(Window { begin_ns, end_ns })
    } else {
        Err(GanttError::EmptyWindow { begin_ns, end_ns, token_ns })
    }
}

fn check_size(trace: &Trace, options: &GanttOptions, top: u32) -> Result<(), GanttError> {
    let &GanttOptions { width, height, .. } = options;
    let (min_width, min_height) = (MIN_WIDTH, top + AXIS + u32::from(trace.meta().blocks));
    if width > MAX_SIDE || height > MAX_SIDE {
        Err(GanttError::TooLarge { width, height })
    } else if width < min_width || height < min_height {
        Err(GanttError::TooSmall { width, height, min_width, min_height })
    } else {
        Ok(())
    }
}

fn text_style(height: u32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    TextStyle {
        font: ("monospace", height).into_font(),
        color: colour.to_backend_color(),
        pos: Pos::new(h, v),
    }
}

fn title_of(meta: &Meta) -> String {
    let rate = meta.pace.map(|pace| format!(", {:.0} tok/s", pace.headline_tok_s));
    let rate = rate.unwrap_or_default();
    format!("monolith {} on {}, position {}{rate}", meta.variant, meta.device, meta.position)
}

fn shortened(text: String, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text;
    }
    let kept: String = text.chars().take(chars.saturating_sub(3)).collect();
    kept + "..."
}

/// Draws the axis, the names of the blocks, and their rows.
fn draw_chart(
    chart_area: &Area<'_>,
    whole: &Area<'_>,
    trace: &Trace,
    window: Window,
) -> Result<(), GanttError> {
    let (begin_us, end_us) = (window.begin_ns as f64 / 1e3, window.end_ns as f64 / 1e3);
    let mut chart = ChartBuilder::on(chart_area)
        .set_label_area_size(LabelAreaPosition::Left, MARGIN)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS)
        .build_cartesian_2d(begin_us..end_us, 0.0..1.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .axis_style(QUIET)
        .bold_line_style(LINE)
        .light_line_style(SURFACE)
        .x_labels(12)
        .x_label_formatter(&|us| microseconds(*us))
        .x_desc("us after the token's begin")
        .label_style(text_style(TEXT_HEIGHT, QUIET, HPos::Left, VPos::Top))
        .draw()?;
    let plot = Plot::new(chart.plotting_area().get_pixel_range(), trace.meta().blocks);
    draw_names(whole, trace, &plot)?;
    draw_rows(whole, trace, &plot, window)
}

fn microseconds(us: f64) -> String {
    let text = format!("{us:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The area of the rows, in pixels.
struct Plot {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
    blocks: u32,
}

impl Plot {
    fn new((x, y): (std::ops::Range<i32>, std::ops::Range<i32>), blocks: u16) -> Plot {
        let [left, top] = [x.start, y.start].map(|pixel| pixel.max(0) as u32);
        let [width, height] = [x.len(), y.len()].map(|length| length as u32);
        Plot { left, top, width, height, blocks: blocks.into() }
    }

    /// The pixels of a block's row from top to bottom; a gap separates rows if there is room.
    fn row(&self, block: u32) -> std::ops::Range<u32> {
        let edge = |block: u32| self.top + block * self.height / self.blocks;
        let (top, bottom) = (edge(block), edge(block + 1));
        top..bottom - u32::from(bottom - top >= 4)
    }
}

fn draw_names(area: &Area<'_>, trace: &Trace, plot: &Plot) -> Result<(), GanttError> {
    let style = text_style(TEXT_HEIGHT, QUIET, HPos::Right, VPos::Center);
    let unit = trace.meta().unit();
    // Names only every 2^n-th block, so that the names do not overlap.
    let rows_of_name = (TEXT_HEIGHT + 3) * plot.blocks / plot.height.max(1);
    let step = (rows_of_name + 1).next_power_of_two();
    for block in (0..plot.blocks).filter(|block| block % step == 0) {
        let row = plot.row(block);
        let position = at(plot.left - 4, u32::midpoint(row.start, row.end));
        area.draw_text(&format!("{unit} {block}"), &style, position)?;
    }
    Ok(())
}

fn draw_rows(
    area: &Area<'_>,
    trace: &Trace,
    plot: &Plot,
    window: Window,
) -> Result<(), GanttError> {
    let spans: Vec<Span> = consumers(trace).collect();
    for spans in spans.chunk_by(|one, other| one.block == other.block) {
        let shades = row(spans, window, plot.width);
        for y in plot.row(spans[0].block.into()) {
            for (x, shade) in (plot.left..).zip(&shades) {
                if let Some(shade) = shade {
                    area.draw_pixel(at(x, y), &shade.colour(x, y))?;
                }
            }
        }
    }
    Ok(())
}

fn consumers(trace: &Trace) -> impl Iterator<Item = Span> + '_ {
    trace.spans().iter().filter(|span| span.role == Role::Consumer)
}

/// The legend: what each shade in the trace means, in one or more lines.
struct Legend {
    /// Each shade with the left and the top of its swatch.
    entries: Vec<(Shade, u32, u32)>,
    lines: u32,
}

impl Legend {
    fn of(trace: &Trace, width: u32) -> Legend {
        let mut shades: Vec<Shade> = consumers(trace).map(|span| Shade::of(&span)).collect();
        shades.sort_unstable();
        shades.dedup();
        let (mut x, mut line) = (PAD, 0);
        let mut entries = Vec::new();
        for shade in shades {
            let needs = SWATCH + (shade.name().len() as u32 + 3) * TEXT_WIDTH;
            if x + needs > width && x > PAD {
                (x, line) = (PAD, line + 1);
            }
            entries.push((shade, x, PAD + TITLE_HEIGHT + PAD + line * LEGEND_LINE));
            x += needs;
        }
        Legend { entries, lines: line + 1 }
    }

    fn height(&self) -> u32 {
        self.lines * LEGEND_LINE + PAD
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), GanttError> {
        let style = text_style(TEXT_HEIGHT, INK, HPos::Left, VPos::Top);
        for &(shade, left, top) in &self.entries {
            for (x, y) in
                (left..left + SWATCH).flat_map(|x| (top..top + TEXT_HEIGHT).map(move |y| (x, y)))
            {
                area.draw_pixel(at(x, y), &shade.colour(x, y))?;
            }
            area.draw_text(shade.name(), &style, at(left + SWATCH + TEXT_WIDTH / 2, top))?;
        }
        Ok(())
    }
}
