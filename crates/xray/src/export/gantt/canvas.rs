//! A picture in memory that the crate `plotters` draws on, with letters that need no system font.

use super::GanttError;
use embedded_graphics::mono_font::iso_8859_1::{FONT_8X13, FONT_10X20};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::{
    DrawTarget, Drawable, OriginDimensions, Pixel, Point, RgbColor, Size,
};
use embedded_graphics::text::{Baseline, Text};
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};
use std::convert::Infallible;

pub(super) const TEXT_WIDTH: u32 = FONT_8X13.character_size.width;
pub(super) const TEXT_HEIGHT: u32 = FONT_8X13.character_size.height;
pub(super) const TITLE_WIDTH: u32 = FONT_10X20.character_size.width;
pub(super) const TITLE_HEIGHT: u32 = FONT_10X20.character_size.height;

/// Red, green and blue, a byte each, row by row.
pub(super) struct Canvas<'a> {
    width: u32,
    height: u32,
    rgb: &'a mut [u8],
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl<'a> Canvas<'a> {
    /// Draws on `rgb`, which holds 3 bytes a pixel.
    pub(super) fn new(width: u32, height: u32, rgb: &'a mut [u8]) -> Canvas<'a> {
        Canvas { width, height, rgb }
    }

    /// Returns the three bytes of a pixel, or none if it is outside the picture.
    fn pixel(&mut self, x: i32, y: i32) -> Option<&mut [u8]> {
        let x = u32::try_from(x).ok().filter(|&x| x < self.width)?;
        let y = u32::try_from(y).ok().filter(|&y| y < self.height)?;
        let first = 3 * (y as usize * self.width as usize + x as usize);
        self.rgb.get_mut(first..first + 3)
    }
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, colour: BackendColor) -> Drawn {
        let (red, green, blue) = colour.rgb;
        if let Some(pixel) = self.pixel(x, y) {
            for (below, above) in pixel.iter_mut().zip([red, green, blue]) {
                let mixed = f64::from(*below) * (1.0 - colour.alpha);
                *below = (mixed + f64::from(above) * colour.alpha).round() as u8;
            }
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Drawn {
        let (width, height) = self.estimate_text_size(text, style)?;
        let left = match style.anchor().h_pos {
            HPos::Left => x,
            HPos::Center => x - width as i32 / 2,
            HPos::Right => x - width as i32,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => y,
            VPos::Center => y - height as i32 / 2,
            VPos::Bottom => y - height as i32,
        };
        let (red, green, blue) = style.color().rgb;
        let letters = MonoTextStyle::new(font(style), Rgb888::new(red, green, blue));
        let text = Text::with_baseline(text, Point::new(left, top), letters, Baseline::Top);
        match text.draw(self) {
            Ok(_) => Ok(()),
            Err(never) => match never {},
        }
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let Size { width, height } = font(style).character_size;
        Ok((width * text.chars().count() as u32, height))
    }
}

fn font<S: BackendTextStyle>(style: &S) -> &'static MonoFont<'static> {
    if style.size() < f64::from(TITLE_HEIGHT) { &FONT_8X13 } else { &FONT_10X20 }
}

impl OriginDimensions for Canvas<'_> {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas<'_> {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(Point { x, y }, colour) in pixels {
            if let Some(pixel) = self.pixel(x, y) {
                pixel.copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
            }
        }
        Ok(())
    }
}

/// The pixels as a PNG file.
pub(super) fn png(width: u32, height: u32, rgb: &[u8]) -> Result<Vec<u8>, GanttError> {
    let encode_error = |error: png::EncodingError| GanttError::Encode(error.to_string());
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(encode_error)?;
    writer.write_image_data(rgb).map_err(encode_error)?;
    writer.finish().map_err(encode_error)?;
    Ok(file)
}
