use super::frame::Seen;
use super::*;

fn scene() -> Scene {
    Scene::new(5000, 20, 9)
}

#[test]
fn the_octree_has_every_polygon_in_its_cell() {
    let scene = scene();
    let mut leaves = 0;
    for (at, cell) in (0..).zip(&scene.cells) {
        let (begin, end) = (cell.polygons.0 as usize, cell.polygons.1 as usize);
        assert!(begin < end, "no cell is empty");
        for polygon in &scene.polygons[begin..end] {
            for (low, value) in cell.corner.iter().zip(polygon) {
                assert!(u32::from(*value) - u32::from(*low) < 1 << cell.level, "{polygon:?} in {cell:?}");
            }
        }
        if scene.is_leaf(at) {
            leaves += end - begin;
        } else {
            let parts: Vec<_> =
                scene.children(at).map(|child| scene.cells[child as usize].polygons).collect();
            assert_eq!((parts[0].0, parts[parts.len() - 1].1), cell.polygons);
            assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0), "children follow each other");
        }
    }
    assert_eq!(leaves, scene.polygons.len());
}

/// A polygon in view is drawn, alone or in a box of less than a pixel: compared with a look at every polygon.
#[test]
fn what_is_in_view_is_drawn() {
    let scene = scene();
    for distance in [1.5, 0.5, 0.1, 0.02] {
        let camera = Camera::new(&scene, distance, 128);
        let mut recorder = Recorder::new(Bytes(8192));
        let mut frame = Frame::new(camera.clone(), &mut recorder);
        let mut seen = vec![None; scene.polygons.len()];
        while let Some((at, what)) = frame.draw_next(&scene, &mut recorder) {
            let cell = &scene.cells[at as usize];
            if what != Seen::Inside {
                for polygon in cell.polygons.0..cell.polygons.1 {
                    assert_eq!(seen[polygon as usize].replace((what, at)), None, "drawn twice");
                }
            }
        }
        let mut visible = 0;
        for (polygon, seen) in scene.polygons.iter().zip(seen) {
            let way = camera.to(polygon.map(f64::from));
            let (what, cell) = seen.expect("nothing is forgotten");
            if camera.sees(way, 0.0) {
                visible += 1;
                assert_ne!(what, Seen::OutOfView, "{polygon:?} is in view from {distance}");
            }
            if what == Seen::Box {
                let (depth, _) = Camera::depth_and_aside(way);
                let side = f64::from(1_u32 << scene.cells[cell as usize].level);
                // The polygon may be nearer than the middle of its cell, by at most half of its diagonal.
                assert!(camera.pixels_wide(side, depth + side) < 1.0, "too large a box");
            }
        }
        assert!(visible > 0, "nothing is in view from {distance}");
    }
}

#[test]
fn nearer_means_finer() {
    let mut render = Render::new(RenderConfig::small(), Bytes(8192), 4);
    crate::workload::tests::run_whole(&mut render);
    let (first, last) = (render.drawn[0], render.drawn[render.drawn.len() - 1]);
    assert!(first.out_of_view < 2000, "from afar nearly all is in view: {first:?}");
    assert!(last.out_of_view > first.out_of_view && last.boxes < first.boxes, "{first:?}, {last:?}");
}
