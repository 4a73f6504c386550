//! `ebb plan --format html`: the plan and the forecast as one page that needs nothing else. Invariant: whatever comes from
//! the database or the file is text in it, never markup.

use ebb::plan::{Forecast, Plan};
use ebb::retain::TreePlan;

use super::{output, plan, words};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1b2733}\
table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #d8dee4}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.bar{background:#2a7de1;height:.7rem;min-width:1px}p.note{color:#5b6b7b}\
.error{color:#b3261e}pre{background:#f3f5f7;margin:.2rem 0;padding:.4rem .6rem;overflow-x:auto;white-space:pre-wrap}";

/// The whole page.
pub(super) fn page(plan: &Plan, forecasts: &[Forecast]) -> String {
    let mut body = String::new();
    body.push_str(&format!("<h1>Ebb plan</h1><p class=note>as of {}</p>", text(&plan.at.to_string())));
    body.push_str("<h2>Changes</h2>");
    if plan.changes.is_empty() {
        body.push_str("<p>The database has what the file says.</p>");
    } else {
        body.push_str("<ul>");
        for change in &plan.changes {
            let action = format!("{:?}", change.action).to_lowercase();
            body.push_str(&format!(
                "<li>{} {}: {}</li>",
                text(&change.kind.to_string()),
                text(&change.name),
                text(&action)
            ));
        }
        body.push_str("</ul>");
    }
    body.push_str(
        "<h2>Due</h2><table><tr><th>policy<th>table<th class=n>due<th class=n>of<th class=n>space<th>remarks</tr>",
    );
    for policy in &plan.policies {
        let rows = |rows: Option<u64>| rows.map_or("?".into(), |rows| words::about(rows, policy.exact));
        let found = policy.problems.iter();
        let remarks: String =
            found.map(|problem| remark(problem.refused, &problem.message, problem.fix.as_deref())).collect();
        body.push_str(&format!(
            "<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}</tr>",
            text(&policy.policy),
            text(&policy.table),
            text(&rows(policy.due_rows)),
            text(&rows(policy.total_rows)),
            text(&policy.due_bytes.map_or("?".into(), words::bytes)),
            remarks,
        ));
    }
    body.push_str("</table>");
    plan.trees.iter().for_each(|tree| body.push_str(&subjects(tree)));
    if !plan.refused.is_empty() {
        body.push_str("<h2>Refused</h2>");
    }
    for refusal in &plan.refused {
        let message = format!("{}: {}", refusal.policy, refusal.message);
        body.push_str(&remark(true, &message, refusal.fix.as_deref()));
    }
    for due in &plan.made_due {
        body.push_str(&remark(false, &due.to_string(), None));
    }
    for forecast in forecasts {
        body.push_str(&days(forecast));
    }
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Ebb plan</title><style>{STYLE}</style><body>{body}</body></html>\n"
    )
}

/// What goes with a subject, and what is due of it.
fn subjects(tree: &TreePlan) -> String {
    let mut out = format!("<h2>{}: subjects of {}</h2>", text(&tree.policy), text(&tree.table));
    let counts =
        [(tree.due, "due"), (tree.held, "on hold"), (tree.blocked, "blocked"), (tree.unmarked, "not marked yet")];
    let counts = counts.iter().filter(|(count, what)| *count > 0 || *what == "due");
    let counts: Vec<String> = counts.map(|(count, what)| format!("{} {what}", output::count(*count))).collect();
    out.push_str(&format!("<p>{}</p>", counts.join(", ")));
    let lines = |lines: Vec<String>| -> String { lines.iter().map(|line| format!("<li>{}", text(line))).collect() };
    let stay = tree.blocked_by.iter().map(|(why, count)| format!("{} stay: {why}", output::count(*count)));
    out.push_str(&format!("<ul>{}</ul>", lines(stay.collect())));
    if !tree.edges.is_empty() {
        out.push_str("<table><tr><th>rows<th>the server's own</tr>");
        for edge in &tree.edges {
            out.push_str(&format!("<tr><td>{}<td>{}</tr>", text(&edge.to_string()), text(&plan::edge_by(edge))));
        }
        out.push_str("</table>");
    }
    if tree.counted > 0 {
        out.push_str(&format!("<p>Due now:</p><ul>{}</ul>", lines(plan::tree_counts(tree))));
    }
    let not_counted = tree.not_counted.iter().map(|why| format!("not counted: {why}"));
    let unapproved = tree.unapproved.iter().map(|difference| format!("not approved yet: {difference}"));
    not_counted.chain(unapproved).for_each(|note| out.push_str(&remark(false, &note, None)));
    for finding in &tree.findings {
        let message = format!("{}: {}", finding.table, finding.message);
        out.push_str(&remark(finding.refuses, &message, tree.mends(finding)));
    }
    if let Some(proposal) = &tree.proposal {
        out.push_str(&remark(false, "to be decided, in the policy's entry:", Some(proposal)));
    }
    out
}

/// What was found, and what mends it.
fn remark(refuses: bool, message: &str, fix: Option<&str>) -> String {
    let class = if refuses { "error" } else { "note" };
    let fix = fix.map_or(String::new(), |fix| format!("<pre>{}</pre>", text(fix)));
    format!("<p class={class}>{}</p>{fix}", text(message))
}

fn days(forecast: &Forecast) -> String {
    let mut out = format!("<h2>Forecast: {}</h2>", text(&forecast.policy));
    if let Some(problem) = &forecast.problem {
        out.push_str(&format!("<p>{}</p>", text(problem)));
        return out;
    }
    let most = forecast.days.iter().map(|day| day.rows).max().unwrap_or(0).max(1);
    out.push_str("<table><tr><th>until<th class=n>rows<th class=n>space<th></tr>");
    for day in &forecast.days {
        out.push_str(&format!(
            "<tr><td>{}<td class=n>{}<td class=n>{}<td style=\"width:40%\"><div class=bar style=\"width:{:.1}%\"></div></tr>",
            text(&day.until.to_string()),
            text(&words::about(day.rows, day.exact)),
            text(&words::bytes(day.bytes)),
            day.rows as f64 * 100.0 / most as f64,
        ));
    }
    out.push_str("</table>");
    out
}

/// Text that stays text.
fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn markup_is_text() {
        assert_eq!(text("<b>'&\"</b>"), "&lt;b&gt;&#39;&amp;&quot;&lt;/b&gt;");
    }
}
