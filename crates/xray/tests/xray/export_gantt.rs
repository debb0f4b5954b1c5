//! The picture, decoded again.

use crate::export_traces::{any_trace, sample};
use monolith_abi::Phase;
use monolith_xray::export::{GanttError, GanttOptions, gantt};
use proptest::prelude::*;

struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

impl Picture {
    fn read(file: &[u8]) -> Picture {
        let decoder = png::Decoder::new(std::io::Cursor::new(file));
        let mut reader = decoder.read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rgb).unwrap();
        assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
        Picture { width: info.width, height: info.height, rgb }
    }

    fn pixel(&self, x: u32, y: u32) -> u32 {
        let first = 3 * (y * self.width + x) as usize;
        self.rgb[first..first + 3].iter().fold(0, |code, &byte| code << 8 | u32::from(byte))
    }

    fn count(&self, colour: u32) -> usize {
        let pixels = self.rgb.chunks(3);
        let codes =
            pixels.map(|pixel| pixel.iter().fold(0, |code, &byte| code << 8 | u32::from(byte)));
        codes.filter(|&code| code == colour).count()
    }
}

/// The colour of this name in the page's light theme, from its own source.
fn page_colour(name: &str) -> u32 {
    page_colours(name)[0]
}

/// All colours of this name: of a wait, its lines' and its ground's.
fn page_colours(name: &str) -> Vec<u32> {
    let source = include_str!("../../../../web/src/paint/palette.ts");
    let light = source.split("LIGHT").nth(1).unwrap().split("};").next().unwrap();
    let line = light.lines().find(|line| line.trim_start().starts_with(&format!("{name}:")));
    let codes = line.unwrap().split('#').skip(1);
    codes.map(|code| u32::from_str_radix(&code[..6], 16).unwrap()).collect()
}

fn options(width: u32, height: u32, window: Option<(u64, u64)>) -> GanttOptions {
    GanttOptions { width, height, window }
}

/// Pixels left and right of the rows.
const LEFT: u32 = 88;
const RIGHT: u32 = 16;

/// The pixel of a time in the sample, whose token is 12,000 ns, in the middle of a block's row.
fn place(picture: &Picture, at_ns: u32, block: u32) -> (u32, u32) {
    let x = LEFT + at_ns * (picture.width - LEFT - RIGHT) / 12_000;
    let (top, bottom) = (63, picture.height - 55);
    (x, top + (2 * block + 1) * (bottom - top) / 4)
}

#[test]
fn work_has_the_colour_of_its_phase() {
    let picture = Picture::read(&gantt(&sample(), &options(1280, 400, None)).unwrap());
    assert_eq!((picture.width, picture.height), (1280, 400));
    let known = [
        (500, 0, Phase::Embed),
        (2700, 0, Phase::Qkv),
        (7500, 0, Phase::Attention),
        (11_000, 0, Phase::Qkv),
        (1700, 1, Phase::Qkv),
        (3250, 1, Phase::GateUp),
    ];
    for (at_ns, block, phase) in known {
        let (x, y) = place(&picture, at_ns, block);
        let expected = page_colour(phase.name());
        assert_eq!(picture.pixel(x, y), expected, "{} at {at_ns} of {block}", phase.name());
    }
}

#[test]
fn waits_have_their_patterns_and_nothing_is_blank() {
    let picture = Picture::read(&gantt(&sample(), &options(1280, 400, None)).unwrap());
    let colours = |at_ns: u32, block| {
        let (x, y) = place(&picture, at_ns, block);
        let around = (x - 6..x + 6).flat_map(|x| (y - 6..y + 6).map(move |y| (x, y)));
        let mut colours: Vec<u32> = around.map(|(x, y)| picture.pixel(x, y)).collect();
        colours.sort_unstable();
        colours.dedup();
        colours
    };
    assert_eq!(colours(5000, 0), page_colours("wait_exchange"));
    assert_eq!(colours(1250, 0), page_colours("wait_ring_full"));
    assert_eq!(colours(4100, 0), page_colours("wait_barrier"));
    assert_eq!(colours(10_500, 1), [page_colour("surface")]);
}

#[test]
fn all_phases_have_the_pages_colours_in_the_legend() {
    let picture = Picture::read(&gantt(&sample(), &GanttOptions::default()).unwrap());
    for phase in [Phase::Embed, Phase::Qkv, Phase::Attention, Phase::GateUp] {
        assert!(picture.count(page_colour(phase.name())) >= 18 * 13, "{}", phase.name());
    }
    assert!(picture.count(page_colour("ink")) > 500, "no letters");
    assert!(picture.count(page_colour("quiet")) > 500, "no axis");
    assert_eq!(picture.count(page_colour("down")), 0, "a phase without work");
}

#[test]
fn a_window_fills_the_picture() {
    let picture =
        Picture::read(&gantt(&sample(), &options(1280, 400, Some((6100, 8900)))).unwrap());
    let attention = page_colour("attention");
    for x in [LEFT, 700, 1279 - RIGHT] {
        assert_eq!(picture.pixel(x, place(&picture, 0, 0).1), attention);
    }
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    let options = GanttOptions::default();
    assert_eq!(gantt(&sample(), &options), gantt(&sample(), &options));
}

#[test]
fn what_cannot_be_seen_is_refused() {
    let error = |options| gantt(&sample(), &options).unwrap_err();
    let small = error(options(300, 100, None));
    let GanttError::TooSmall { min_width, min_height, .. } = small else { panic!("{small}") };
    assert!(gantt(&sample(), &options(min_width, min_height, None)).is_ok());
    assert!(matches!(error(options(min_width, min_height - 1, None)), GanttError::TooSmall { .. }));
    assert!(matches!(error(options(1 << 30, 1 << 30, None)), GanttError::TooLarge { .. }));
    for window in [(5, 5), (9, 3), (12_000, 13_000)] {
        let refused = error(options(800, 600, Some(window)));
        assert!(matches!(refused, GanttError::EmptyWindow { .. }), "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_trace_has_a_picture(
        trace in any_trace(),
        width in 320..900_u32,
        height in 200..500_u32,
        begin_ns in 0..100_000_u64,
        length_ns in 1..100_000_u64,
    ) {
        let window = Some((begin_ns, begin_ns + length_ns));
        let whole = gantt(&trace, &options(width, height, None)).unwrap();
        let picture = Picture::read(&whole);
        prop_assert_eq!((picture.width, picture.height), (width, height));
        let part = gantt(&trace, &options(width, height, window));
        prop_assert_eq!(part.is_ok(), begin_ns < trace.meta().token_ns);
    }
}
