//! `monolith inspect`

use crate::exit::{Code, Exit};
use crate::progress::Progress;
use crate::text_out::{put, show};
use crate::{losses, source, values};
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use monolith_pack::{Geometry, Header, Pack, ScaleSearch};
use std::fmt::Write;
use std::path::PathBuf;

/// Show what a pack holds, how many bytes a token reads, and the roofline
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The pack, a file that `monolith pack` wrote
    pub pack: PathBuf,
    /// Memory bandwidth for the roofline, in GB/s
    #[arg(long, value_name = "X", value_parser = values::speed, allow_negative_numbers = true)]
    pub gb_s: Option<f64>,
    /// Number of cached positions, for the bytes of the KV cache
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub position: usize,
    /// List every section
    #[arg(long)]
    pub sections: bool,
    /// Print the header as JSON
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  monolith inspect tiny.pack
  monolith inspect qwen3.pack --gb-s 1792 --position 1000
  monolith inspect qwen3.pack --json | jq .roofline_tok_s";

/// Shows a pack's header, and the figures that follow from it.
///
/// # Errors
/// Code 4 for a missing file, 1 for a damaged one.
pub fn run(args: &Args) -> Result<(), Exit> {
    let path = args.pack.display();
    if args.pack.is_dir() {
        let what = format!("{path} is a folder: `monolith pack -m {path} -o FILE` makes a pack");
        return Err(Exit::message(Code::Usage, what));
    }
    source::check_file(&args.pack)?;
    let progress = Progress::bytes("inspect: checking");
    let pack = Pack::open_watched(&args.pack, &|done, total| {
        progress.at(done, total);
        Ok(())
    })?;
    drop(progress);
    let positions = pack.config().max_positions;
    if args.position > positions {
        let what = format!("--position {}: this model has {positions}", args.position);
        return Err(Exit::message(Code::Usage, what));
    }
    if args.json {
        put(&json(pack.header(), args))?;
    } else {
        show(&table(&pack, args))?;
    }
    Ok(())
}

/// Returns the tokens per second of a step that only reads its bytes, at this bandwidth.
fn roofline(header: &Header, args: &Args) -> Option<f64> {
    args.gb_s.map(|speed| speed * 1e9 / header.bytes_at(args.position) as f64)
}

fn json(header: &Header, args: &Args) -> String {
    let value = serde_json::json!({
        "header": header,
        "position": args.position,
        "bytes_at_position": header.bytes_at(args.position),
        "gb_s": args.gb_s,
        "roofline_tok_s": roofline(header, args),
    });
    format!("{value:#}\n")
}

fn table(pack: &Pack, args: &Args) -> String {
    let (header, config) = (pack.header(), pack.config());
    let mut text = format!(
        "model        {}{}\nshape        {} layers, hidden {}, intermediate {}, {} query and {} KV \
         heads of {}, vocabulary {}{}\nformat       {}{}\n{}\n",
        header.source.model,
        header.source.revision.as_ref().map_or(String::new(), |commit| format!(" at {commit}")),
        config.layers,
        config.hidden,
        config.intermediate,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.vocab,
        if config.tied { ", tied" } else { "" },
        header.formats.name(),
        scale_search(header),
        geometry(header),
    );
    if let Some(ids) = header.end_ids.as_ref().filter(|ids| !ids.is_empty()) {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "ends at      token {}\n", ids.join(", "));
    }
    let mut bytes = Table::new();
    bytes.load_style(NOTHING).set_header(["read by", "format", "bytes", "share"]);
    for (kind, sum) in header.bytes_by_kind() {
        let share = 100.0 * sum as f64 / header.payload_bytes() as f64;
        let format = format_of(header, &kind).to_owned();
        bytes.add_row([kind, format, sum.to_string(), format!("{share:.1}%")]);
    }
    for column in [2, 3] {
        if let Some(column) = bytes.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(text, "{bytes}\n");
    let _ = writeln!(text, "bytes a token            {}", header.bytes_per_token);
    let _ = writeln!(text, "KV bytes a position      {}", header.kv_bytes_per_position);
    let at = args.position;
    let _ = writeln!(text, "bytes a token at {at:<8}{}", header.bytes_at(at));
    if let (Some(limit), Some(speed)) = (roofline(header, args), args.gb_s) {
        let _ = writeln!(text, "roofline at {speed} GB/s    {limit:.1} tok/s");
    }
    if let Some(losses) = losses::table(header) {
        let _ = writeln!(text, "\n{losses}");
    }
    if args.sections {
        text.push_str(&sections(header));
    }
    text
}

/// Says how the scales were chosen, unless by the default.
fn scale_search(header: &Header) -> &'static str {
    match header.scale_search {
        ScaleSearch::Amax => "",
        ScaleSearch::Mse => ", scales by least squared error",
    }
}

/// Renders a line for each format: the layout of its tiles.
fn geometry(header: &Header) -> String {
    let line = |of: &Geometry| {
        let scales =
            of.scales.as_ref().map_or(String::new(), |scales| format!("; scales {scales}"));
        format!(
            "tiles {:<6} {} rows, fragments of {} columns ({}){scales}\n",
            of.format, header.tile_rows, of.fragment_cols, of.fragment_order
        )
    };
    header.geometry.iter().map(line).collect()
}

/// Returns the format of this kind of section.
fn format_of<'a>(header: &'a Header, kind: &str) -> &'a str {
    let named = |name: &str| name.rsplit('.').next() == Some(kind);
    let entry = header.sections.iter().find(|entry| named(&entry.name));
    entry.map_or("", |entry| &entry.format)
}

fn sections(header: &Header) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["section", "format", "rows", "cols", "offset", "bytes"]);
    for entry in &header.sections {
        let numbers = [entry.rows as u64, entry.cols as u64, entry.offset, entry.bytes];
        let cells = numbers.map(|number| number.to_string());
        table.add_row([entry.name.clone(), entry.format.clone()].into_iter().chain(cells));
    }
    format!("\n{table}\n")
}
