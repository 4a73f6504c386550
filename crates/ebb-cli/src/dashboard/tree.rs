//! What hangs on a subject, as a picture: tables from the root to the right, what goes in one colour, what only loses its
//! link in another. Drawn here as SVG, with the same facts as text for those who do not see it.

use std::collections::BTreeMap;

use ebb::retain::{Shape, ShapeEdge};
use maud::{Markup, html};

use super::text::number;

const BOX: (f64, f64) = (210.0, 48.0);
const GAP: (f64, f64) = (92.0, 18.0);

struct Placed<'a> {
    table: &'a str,
    depth: usize,
    row: usize,
}

/// Each table once, as near to the root as an edge leads to it; children under their parents.
fn place(shape: &Shape) -> Vec<Placed<'_>> {
    let is_child = |table: &str| shape.edges.iter().any(|edge| edge.table == table && edge.parent != table);
    let root = shape.tables.iter().find(|table| !is_child(&table.table)).or(shape.tables.first());
    let Some(root) = root else { return Vec::new() };
    let mut placed = vec![Placed { table: &root.table, depth: 0, row: 0 }];
    let mut rows = vec![1];
    let mut at = 0;
    while at < placed.len() {
        let (parent, depth) = (placed[at].table, placed[at].depth + 1);
        for edge in shape.edges.iter().filter(|edge| edge.parent == parent) {
            if placed.iter().any(|known| known.table == edge.table) {
                continue;
            }
            if rows.len() <= depth {
                rows.push(0);
            }
            placed.push(Placed { table: &edge.table, depth, row: rows[depth] });
            rows[depth] += 1;
        }
        at += 1;
    }
    placed
}

pub(super) fn picture(shape: &Shape, erased: &BTreeMap<String, u64>, unlinked: &BTreeMap<String, u64>) -> Markup {
    let placed = place(shape);
    let (columns, rows) = (
        placed.iter().map(|one| one.depth).max().unwrap_or(0) + 1,
        placed.iter().map(|one| one.row).max().unwrap_or(0) + 1,
    );
    let (width, height) = (columns as f64 * (BOX.0 + GAP.0) - GAP.0 + 4.0, rows as f64 * (BOX.1 + GAP.1) - GAP.1 + 4.0);
    let corner = |one: &Placed| (2.0 + one.depth as f64 * (BOX.0 + GAP.0), 2.0 + one.row as f64 * (BOX.1 + GAP.1));
    let find = |table: &str| placed.iter().find(|one| one.table == table);
    html! {
        svg.tree viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" aria-label="The tables that hang on the subject" {
            @for edge in &shape.edges {
                @if let (Some(parent), Some(child)) = (find(&edge.parent), find(&edge.table)) {
                    @let ((px, py), (cx, cy)) = (corner(parent), corner(child));
                    @let (from, to) = ((px + BOX.0, py + BOX.1 / 2.0), (cx, cy + BOX.1 / 2.0));
                    @let bend = (from.0 + to.0) / 2.0;
                    path class={ "edge " (tone(edge)) } d={ "M" (from.0) " " (from.1) " C" (bend) " " (from.1) " " (bend) " " (to.1) " " (to.0) " " (to.1) } { title { (edge) } }
                }
            }
            @for one in &placed {
                @let (x, y) = corner(one);
                @let goes = erased.get(one.table).copied().unwrap_or(0);
                @let lets_go = unlinked.get(one.table).copied().unwrap_or(0);
                g class={ "node " @if goes > 0 { "goes" } @else if lets_go > 0 { "unlinked" } } {
                    title { (one.table) ": " (number(goes)) " rows would go, " (number(lets_go)) " would lose their link" }
                    rect x=(x) y=(y) width=(BOX.0) height=(BOX.1) rx="9" {}
                    text.name x=(x + 12.0) y=(y + 20.0) { (short(one.table)) }
                    text x=(x + 12.0) y=(y + 37.0) {
                        @if goes > 0 { (number(goes)) @if goes == 1 { " row goes" } @else { " rows go" } }
                        @else if lets_go > 0 { (number(lets_go)) " lose their link" }
                        @else { "no rows" }
                    }
                }
            }
        }
        p.legend { span.goes { "goes" } span.unlinked { "stays, its link ends" } span { "nothing of it" } }
        details { summary { "As text" } table { tbody { @for edge in &shape.edges { tr { td { code { (edge.table) } " (" (edge.columns.join(", ")) ")" } td { code { (edge.parent) } } td { (edge.action) } } } } } }
    }
}

fn tone(edge: &ShapeEdge) -> &'static str {
    match edge.action.split_whitespace().next() {
        Some("delete") => "goes",
        Some("keep") => "",
        _ => "unlinked",
    }
}

/// A table's name in what fits into a box.
fn short(table: &str) -> String {
    let name = table.strip_prefix("public.").unwrap_or(table);
    match name.chars().count() > 26 {
        true => name.chars().take(25).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(table: &str, parent: &str, action: &str) -> ShapeEdge {
        ShapeEdge {
            table: table.into(),
            columns: vec!["x".into()],
            parent: parent.into(),
            references: vec!["id".into()],
            foreign_key: None,
            on_delete: None,
            action: action.into(),
            kept_by: None,
            emptied: None,
            undecided: false,
            given: None,
        }
    }

    #[test]
    fn every_table_is_placed_once_also_in_a_circle() {
        let table = |name: &str| ebb::retain::ShapeTable { table: name.into(), erased: true, triggers: Vec::new() };
        let shape = Shape {
            key: Vec::new(),
            tables: vec![table("users"), table("orders"), table("items")],
            edges: vec![
                edge("orders", "users", "delete"),
                edge("items", "orders", "delete"),
                edge("orders", "items", "nullify"),
                edge("users", "users", "nullify"),
            ],
        };
        let placed: Vec<(&str, usize)> = place(&shape).iter().map(|one| (one.table, one.depth)).collect();
        assert_eq!(placed, [("users", 0), ("orders", 1), ("items", 2)]);
        let svg = picture(&shape, &[("orders".to_owned(), 3)].into(), &BTreeMap::new()).into_string();
        assert!(svg.contains("3 rows go") && svg.contains("class=\"edge unlinked\""), "{svg}");
    }
}
