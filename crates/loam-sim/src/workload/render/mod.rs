//! Render: a scene from a precomputed database, while the viewpoint moves closer (gms-1995, section 5.3).
//!
//! The paper's program is that of its reference [5] (Chamberlain, DeRose, Lischinski, Salesin, Snyder, "Fast rendering of complex environments using a
//! spatial hierarchy", 1995): an octree whose every cell has a color for each of its sides. A cell that is seen smaller than a
//! pixel is drawn as one colored box, and what it consists of is not looked at; a leaf is drawn polygon by polygon. Ours does that
//! with a forest on hills (`scene`), front to back, and each step closer makes it go deeper into fewer cells.

mod frame;
mod scene;
#[cfg(test)]
mod tests;

use super::recorder::Recorder;
use super::{Footprint, Reference, WorkFile, Workload};
use frame::{Camera, Frame, PIXEL_BYTES};
use loam_core::units::Bytes;
use scene::Scene;
use std::sync::Arc;

/// What is rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderConfig {
    /// Polygons of the scene.
    pub polygons: u32,
    /// Trees among them have as many polygons each.
    pub trees: u32,
    /// Pictures.
    pub frames: u32,
    /// The first distance of the viewpoint, in sides of the scene.
    pub distance: f64,
    /// The next distance is so much of this one.
    pub approach: f64,
    /// Picture's width and height in pixels.
    pub pixels: u32,
}

impl RenderConfig {
    /// A database of 178 MB, as in the paper; from one and a half sides away to a thirtieth of one, in pictures of a quarter of that time's
    /// large screens.
    pub fn paper() -> Self {
        Self { polygons: 2_057_000, trees: 2000, frames: 16, distance: 1.5, approach: 0.775, pixels: 512 }
    }

    /// For tests.
    pub fn small() -> Self {
        Self { polygons: 20_000, trees: 50, frames: 8, pixels: 128, ..Self::paper() }
    }
}

/// References that are yielded at a time, about.
const REFERENCES_PER_CALL: usize = 4096;

/// See the module.
#[derive(Clone, Debug)]
pub struct Render {
    config: RenderConfig,
    page: Bytes,
    footprint: Footprint,
    scene: Arc<Scene>,
    recorder: Recorder,
    frame: Option<Frame>,
    /// Of each picture that is done.
    drawn: Vec<Drawn>,
}

/// What became of the polygons in one picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    /// In cells that are out of view.
    pub out_of_view: u64,
    /// In cells drawn as boxes, and how many those are.
    pub in_boxes: u64,
    pub boxes: u64,
    /// One by one.
    pub alone: u64,
}

impl Render {
    /// # Panics
    /// If there is nothing to draw, or a page has no permitted size.
    pub fn new(config: RenderConfig, page: Bytes, seed: u64) -> Self {
        assert!(config.polygons > 0 && config.frames > 0 && config.pixels > 0, "nothing is to be drawn");
        assert!(config.distance > 0.0 && config.approach > 0.0, "the viewpoint is in front of the scene");
        let scene = Scene::new(config.polygons, config.trees, seed);
        Self::of(config, page, Arc::new(scene))
    }

    fn of(config: RenderConfig, page: Bytes, scene: Arc<Scene>) -> Self {
        let recorder = Recorder::new(page);
        let picture = u64::from(config.pixels).pow(2) * PIXEL_BYTES;
        let database = WorkFile { name: "scene".into(), pages: recorder.pages(scene.bytes()), made: false };
        let footprint = Footprint { private_pages: recorder.pages(picture), files: vec![database] };
        Self { config, page, footprint, scene, recorder, frame: None, drawn: Vec::new() }
    }

    fn is_over(&self) -> bool {
        self.drawn.len() == self.config.frames as usize
    }

    fn step(&mut self) {
        let (number, scene) = (self.drawn.len() as i32, &self.scene);
        let frame = self.frame.get_or_insert_with(|| {
            let distance = (0..number).fold(self.config.distance, |d, _| d * self.config.approach);
            Frame::new(Camera::new(scene, distance, self.config.pixels), &mut self.recorder)
        });
        while self.recorder.len() < REFERENCES_PER_CALL {
            if frame.draw_next(scene, &mut self.recorder).is_none() {
                self.drawn.push(frame.drawn());
                self.frame = None;
                return;
            }
        }
    }
}

impl Workload for Render {
    fn name(&self) -> &'static str {
        "render"
    }

    fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    fn next_references(&mut self, into: &mut Vec<Reference>) -> bool {
        while self.recorder.len() == 0 && !self.is_over() {
            self.step();
        }
        self.recorder.take(into)
    }

    fn restart(&mut self) {
        *self = Self::of(self.config.clone(), self.page, Arc::clone(&self.scene));
    }

    fn check(&self) -> Result<Vec<String>, String> {
        if !self.is_over() {
            return Err("the run is not over".into());
        }
        let mut lines = vec![format!("a database of {}", Bytes(self.scene.bytes()))];
        for (number, drawn) in (1..).zip(&self.drawn) {
            // No polygon is forgotten, and none is drawn both alone and in a box.
            if drawn.out_of_view + drawn.in_boxes + drawn.alone != u64::from(self.config.polygons) {
                return Err(format!("picture {number} lost polygons: {drawn:?}"));
            }
            lines.push(format!(
                "picture {number}: {} boxes for {} polygons, {} polygons alone",
                drawn.boxes, drawn.in_boxes, drawn.alone
            ));
        }
        Ok(lines)
    }
}
