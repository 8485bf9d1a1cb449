//! PNG files: one made for uploading, and a look at whether a screenshot shows anything.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The share of pixels that one colour may cover before a picture counts as blank.
const BLANK_SHARE: f64 = 0.9995;

/// A colourful PNG of `width` × `height` pixels.
pub fn png(width: u32, height: u32) -> Vec<u8> {
    let mut pixels = Vec::with_capacity((width * height * 3) as usize);
    for y in 0..height {
        for x in 0..width {
            pixels.extend([(x * 255 / width) as u8, (y * 255 / height) as u8, (x ^ y) as u8]);
        }
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().expect("a PNG header can be written to memory");
    writer.write_image_data(&pixels).expect("PNG data can be written to memory");
    writer.finish().expect("a PNG can be finished in memory");
    file
}

/// Insists that the file is a PNG in which no single colour covers nearly everything.
///
/// # Panics
/// When it is missing, is no PNG, or is blank.
pub fn assert_not_blank(path: &Path) {
    let file = File::open(path)
        .unwrap_or_else(|error| panic!("there is no picture {}: {error}", path.display()));
    let mut decoder = png::Decoder::new(BufReader::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().expect("a screenshot is a PNG");
    let size = reader.output_buffer_size().expect("a screenshot fits in memory");
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).expect("a screenshot has a frame");
    let samples = frame.color_type.samples();
    let mut counts: HashMap<&[u8], u64> = HashMap::new();
    let mut run: (&[u8], u64) = (&[], 0);
    for pixel in pixels[..frame.buffer_size()].chunks_exact(samples) {
        if pixel != run.0 {
            *counts.entry(run.0).or_default() += run.1;
            run = (pixel, 0);
        }
        run.1 += 1;
    }
    *counts.entry(run.0).or_default() += run.1;
    let total: u64 = counts.values().sum();
    let most = counts.values().copied().max().unwrap_or(0);
    let share = most as f64 / total.max(1) as f64;
    assert!(
        share < BLANK_SHARE,
        "{} is blank: one colour covers {:.2} % of {total} pixels",
        path.display(),
        share * 100.0
    );
}
