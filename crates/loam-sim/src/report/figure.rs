//! What a figure shows: data and axes. How it is drawn is in `draw.rs`, `lines.rs` and `bars.rs`.

use super::ticks::Axis;

/// How the points of a series are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// By straight lines.
    #[default]
    Line,
    /// By steps: a value holds until the next point.
    Step,
    /// Not at all.
    Scatter,
}

/// Points with a name in the legend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) join: Join,
    pub(super) markers: bool,
    pub(super) published_of: Option<usize>,
}

impl Series {
    /// A line through `points`, in their order.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, ..Self::default() }
    }

    /// Steps through `points`.
    pub fn step(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { join: Join::Step, ..Self::line(name, points) }
    }

    /// Points that are not joined.
    pub fn scatter(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { join: Join::Scatter, markers: true, ..Self::line(name, points) }
    }

    /// Published values, as hollow diamonds in the colour of series `of` (counted from zero in the order of adding).
    pub fn published(name: impl Into<String>, of: usize, points: Vec<(f64, f64)>) -> Self {
        Self { join: Join::Scatter, published_of: Some(of), ..Self::line(name, points) }
    }

    /// The same with a marker on every point.
    #[must_use]
    pub fn markers(mut self) -> Self {
        self.markers = true;
        self
    }
}

/// Groups of bars, each bar a stack of components. With one component the bars of a group differ in colour and the legend names
/// them; with several the components do, and each bar has its name underneath.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    pub(super) bars: Vec<String>,
    pub(super) components: Vec<String>,
    pub(super) groups: Vec<Group>,
}

/// One group: `values[bar][component]`, and published heights of whole bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) values: Vec<Vec<f64>>,
    pub(super) published: Vec<Option<f64>>,
}

impl Bars {
    /// Bars with these names in every group, each of one piece.
    pub fn plain<S: Into<String>>(bars: impl IntoIterator<Item = S>) -> Self {
        Self::stacked(bars, [""])
    }

    /// Bars with these names in every group, each a stack of these components, the first at the bottom.
    ///
    /// # Panics
    /// Panics without a bar or without a component: there would be nothing to draw, ever.
    pub fn stacked<S: Into<String>, C: Into<String>>(
        bars: impl IntoIterator<Item = S>,
        components: impl IntoIterator<Item = C>,
    ) -> Self {
        let bars: Vec<String> = bars.into_iter().map(Into::into).collect();
        let components: Vec<String> = components.into_iter().map(Into::into).collect();
        assert!(!bars.is_empty() && !components.is_empty(), "bars without bars or components");
        Self { bars, components, groups: Vec::new() }
    }

    /// Adds a group: for each bar the heights of its components. A bar that is not there is an empty list.
    ///
    /// # Panics
    /// Panics if there are not as many lists as bars, or a list that is neither empty nor as long as there are components.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>, values: Vec<Vec<f64>>) -> Self {
        assert_eq!(values.len(), self.bars.len(), "bars of a group");
        for heights in &values {
            assert!(heights.is_empty() || heights.len() == self.components.len(), "components of a bar");
        }
        let published = vec![None; self.bars.len()];
        self.groups.push(Group { name: name.into(), values, published });
        self
    }

    /// Adds a group of bars of one piece.
    ///
    /// # Panics
    /// Panics if there are not as many values as bars, or if the bars have components.
    #[must_use]
    pub fn plain_group(self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        self.group(name, values.into_iter().map(|value| vec![value]).collect())
    }

    /// Marks the published height of each bar of the last group with a hollow diamond.
    ///
    /// # Panics
    /// Panics if there is no group yet or not one entry for each bar.
    #[must_use]
    pub fn published(mut self, heights: Vec<Option<f64>>) -> Self {
        assert_eq!(heights.len(), self.bars.len(), "published heights of a group");
        self.groups.last_mut().expect("a group comes before its published heights").published = heights;
        self
    }

    /// Whether the legend names components rather than bars.
    pub(super) fn is_stacked(&self) -> bool {
        self.components.len() > 1
    }

    pub(super) fn has_published(&self) -> bool {
        self.groups.iter().any(|group| group.published.iter().any(Option::is_some))
    }
}

/// What is drawn between the axes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Marks {
    Series { x: Axis, series: Vec<Series> },
    Bars(Bars),
}

/// A figure. The same figure gives the same bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(super) title: String,
    pub(super) y: Axis,
    pub(super) marks: Marks,
    pub(super) note: String,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Figure {
    /// A figure of lines or points; series are added with [`Figure::series`].
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self::with(title.into(), y, Marks::Series { x, series: Vec::new() })
    }

    /// A figure of grouped bars. Their axis is linear and begins at zero.
    pub fn bars(title: impl Into<String>, y: Axis, bars: Bars) -> Self {
        let linear = super::Scale::Linear;
        Self::with(title.into(), y.scale(linear).include(0.0), Marks::Bars(bars))
    }

    fn with(title: String, y: Axis, marks: Marks) -> Self {
        Self { title, y, marks, note: String::new(), width: 800, height: 460 }
    }

    /// Adds a series.
    ///
    /// # Panics
    /// Panics if the figure is one of bars.
    #[must_use]
    pub fn series(mut self, added: Series) -> Self {
        match &mut self.marks {
            Marks::Series { series, .. } => series.push(added),
            Marks::Bars(_) => panic!("a series in a figure of bars"),
        }
        self
    }

    /// A line of small text under the figure.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The same with another size; what is smaller than 320 × 240 or larger than 4,000 × 4,000 is brought to that.
    #[must_use]
    pub fn size(mut self, width: u32, height: u32) -> Self {
        self.width = width.clamp(320, 4_000);
        self.height = height.clamp(240, 4_000);
        self
    }

    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The figure as a standalone SVG document.
    pub fn svg(&self) -> String {
        super::draw::svg(self)
    }
}
