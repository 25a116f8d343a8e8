//! XML documents with places in their text.

use roxmltree::{Document, Node, ParsingOptions};

use super::input::{Input, shorten};
use crate::file::source::Place;

/// Elements, attributes and texts of a document at most.
const NODES_MAX: u32 = 1 << 20;

/// Runs `read` on the root element of a file, which must be called `root`.
pub(super) fn document(
    input: &mut Input,
    file: usize,
    root: &str,
    read: impl FnOnce(&mut Input, Node<'_, '_>),
) {
    let text = input.text(file).to_string();
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let parsed = match Document::parse_with_options(&text, options) {
        Ok(parsed) => parsed,
        Err(e) => {
            let at = input.errors.sources()[file].offset(e.pos().row as usize, e.pos().col as usize);
            let place = input.place(file, at..at + 1);
            return input.error(place, format!("invalid XML: {e}"), format!("expected a <{root}> element"));
        }
    };
    let element = parsed.root_element();
    if element.tag_name().name() != root {
        let place = place(input, file, element);
        let message = format!("the root element is <{}>", shorten(element.tag_name().name()));
        return input.error(place, message, format!("expected <{root}>"));
    }
    read(input, element);
}

/// The start tag of an element.
pub(super) fn place(input: &Input, file: usize, node: Node<'_, '_>) -> Place {
    let range = node.range();
    let source = &input.text(file)[range.clone()];
    let end = source.find('>').map_or(source.len(), |at| at + 1);
    input.place(file, range.start..range.start + end)
}

/// The value of an attribute and where it stands.
pub(super) fn attribute<'a>(
    input: &Input,
    file: usize,
    node: Node<'a, '_>,
    name: &str,
) -> Option<(&'a str, Place)> {
    let attribute = node.attribute_node(name)?;
    Some((attribute.value(), input.place(file, attribute.range())))
}

/// An attribute that has to be there.
pub(super) fn required<'a>(
    input: &mut Input,
    file: usize,
    node: Node<'a, '_>,
    name: &str,
) -> Option<(&'a str, Place)> {
    let found = attribute(input, file, node, name);
    if found.is_none() {
        let place = place(input, file, node);
        let message = format!("<{}> has no attribute `{name}`", shorten(node.tag_name().name()));
        input.error(place, message, format!("expected {name}=\"...\""));
    }
    found
}

/// The first child element of this name.
pub(super) fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    elements(node).find(|n| n.tag_name().name() == name)
}

/// The child elements.
pub(super) fn elements<'a, 'i>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

/// The text in an element, without comments in it.
pub(super) fn text(node: Node<'_, '_>) -> String {
    let parts: String = node.children().filter(Node::is_text).filter_map(|part| part.text()).collect();
    parts.trim().to_string()
}
