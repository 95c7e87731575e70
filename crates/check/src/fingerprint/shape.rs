//! The shape of the items of one Rust file: what the compiler reads, without what only people read.
//!
//! Not shape: comments and docs, formatting, and log lines. Formatting includes trailing commas, and the braces around a
//! lone expression in a match arm or a closure, which rustfmt adds for a comment and takes away with it. A log line that
//! is a statement is as if it were not there; one that is an expression is as if it were `()`. So what a log line
//! computes must not matter, which is a good rule anyway. Everything else is shape.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use sha2::{Digest, Sha256};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Arm, Attribute, Block, Expr, ExprBlock, ExprClosure, ImplItem, Item, ItemImpl, Meta, ReturnType, Stmt, Token, Type,
};

/// Macros whose calls are log lines.
const LOG_MACROS: [&str; 7] = ["trace", "debug", "info", "warn", "error", "event", "span"];

/// How many hexadecimal digits of a SHA-256 a short hash keeps: enough that no two shapes meet by chance.
const SHORT_HASH_DIGITS: usize = 16;

/// The operators that are one token. Those that begin with `>` are missing on purpose: generics close with it, so `>>`
/// is read as two tokens everywhere, which no valid program can tell from `> >`.
const OPERATORS: [&str; 21] = [
    "<<=", "...", "..=", "&&", "||", "<<", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "==", "!=", "<=", "->",
    "=>", "::", "..",
];

/// Keywords after which a parenthesis opens a tuple or a group and never the arguments of a call.
const KEYWORDS_BEFORE_TUPLE: [&str; 14] =
    ["as", "break", "dyn", "else", "for", "if", "impl", "in", "let", "match", "move", "mut", "return", "while"];

/// One item of a file; several of the same name are joined in source order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// The text, for people.
    pub(super) source: String,
    /// What the compiler reads.
    tokens: Vec<String>,
}

impl Shape {
    pub(super) fn hash(&self) -> String {
        short_hash(self.tokens.join("\n").as_bytes())
    }

    /// The words in this item that bring in another task or another order: `lock`, `spawn`, `select`.
    pub(super) fn concurrency(&self) -> Vec<&str> {
        let word = |at: usize| self.tokens.get(at).map_or("", String::as_str);
        let mut found: Vec<&str> = (0..self.tokens.len())
            .filter(|&at| {
                let mut parts = word(at).split('_');
                match word(at) {
                    "select" => word(at + 1) == "!",
                    name if name.starts_with(|first: char| first.is_alphabetic()) => {
                        parts.clone().next() == Some("spawn")
                            || (at > 0 && word(at - 1) == "." && parts.any(|part| part == "lock"))
                    }
                    _ => false,
                }
            })
            .map(word)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The first digits of a SHA-256.
pub(crate) fn short_hash(bytes: &[u8]) -> String {
    let mut digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(SHORT_HASH_DIGITS);
    digits
}

/// Every item of a file that is no test, by name.
pub(super) fn shapes(text: &str) -> syn::Result<BTreeMap<String, Shape>> {
    let text = text.trim_start_matches('\u{feff}');
    let file: syn::File = syn::parse_str(text)?;
    let mut collector = Collector { text, shapes: BTreeMap::new() };
    collector.items(&file.items, &Place::default())?;
    Ok(collector.shapes)
}

/// Where an item stands: the modules around it give it its name, their headers and that of its impl are its shape too.
#[derive(Default)]
struct Place {
    prefix: String,
    open: String,
    close: String,
}

struct Collector<'t> {
    text: &'t str,
    shapes: BTreeMap<String, Shape>,
}

impl Collector<'_> {
    fn items(&mut self, items: &[Item], place: &Place) -> syn::Result<()> {
        for item in items {
            let (attributes, name) = match item {
                Item::Const(item) => (&item.attrs, item.ident.to_string()),
                Item::Enum(item) => (&item.attrs, item.ident.to_string()),
                Item::Fn(item) => (&item.attrs, item.sig.ident.to_string()),
                Item::Static(item) => (&item.attrs, item.ident.to_string()),
                Item::Struct(item) => (&item.attrs, item.ident.to_string()),
                Item::Trait(item) => (&item.attrs, item.ident.to_string()),
                Item::TraitAlias(item) => (&item.attrs, item.ident.to_string()),
                Item::Type(item) => (&item.attrs, item.ident.to_string()),
                Item::Union(item) => (&item.attrs, item.ident.to_string()),
                Item::Macro(item) => {
                    let name = match &item.ident {
                        Some(name) => name.to_string(),
                        None => format!("{}!", compact(item.mac.path.to_token_stream())),
                    };
                    (&item.attrs, name)
                }
                Item::Impl(item) => {
                    self.impl_block(item, place)?;
                    continue;
                }
                Item::Mod(item) => {
                    if let (Some((brace, items)), false) = (&item.content, is_test(&item.attrs)) {
                        let header = self.between(item.span(), brace.span.open());
                        self.items(items, &place.inside(&format!("{}::", item.ident), header))?;
                    }
                    continue;
                }
                // The rest names things of other places, or is syntax that stable Rust does not have.
                _ => continue,
            };
            if !is_test(attributes) {
                self.add(&name, item.span(), place)?;
            }
        }
        Ok(())
    }

    fn impl_block(&mut self, block: &ItemImpl, place: &Place) -> syn::Result<()> {
        if is_test(&block.attrs) {
            return Ok(());
        }
        let owner = match block.self_ty.as_ref() {
            // Without generic arguments: a reader writes `Queue::push`, whatever the queue holds.
            Type::Path(path) if path.qself.is_none() => {
                let segments = path.path.segments.iter().map(|segment| segment.ident.to_string());
                segments.collect::<Vec<_>>().join("::")
            }
            other => compact(other.to_token_stream()),
        };
        let owner = match &block.trait_ {
            Some((path, _)) => format!("<{owner} as {}>", compact(path.to_token_stream())),
            None => owner,
        };
        if block.items.is_empty() {
            return self.add(&owner, block.span(), place);
        }
        let inside = place.inside("", self.between(block.span(), block.brace_token.span.open()));
        for item in &block.items {
            let (attributes, name) = match item {
                ImplItem::Const(item) => (&item.attrs, item.ident.to_string()),
                ImplItem::Fn(item) => (&item.attrs, item.sig.ident.to_string()),
                ImplItem::Type(item) => (&item.attrs, item.ident.to_string()),
                ImplItem::Macro(item) => (&item.attrs, format!("{}!", compact(item.mac.path.to_token_stream()))),
                _ => continue,
            };
            if !is_test(attributes) {
                self.add(&format!("{owner}::{name}"), item.span(), &inside)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, span: proc_macro2::Span, place: &Place) -> syn::Result<()> {
        // The span begins at the item's first token; what stands before it on its line is the indentation of the diff.
        let range = span.byte_range();
        let line = self.text[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
        let indentation = &self.text[line..range.start];
        let indentation = if indentation.trim().is_empty() { indentation } else { "" };
        let source = format!("{}{indentation}{}\n{}", place.open, &self.text[range], place.close);
        // With the headers around it, an item is a file of its own.
        let mut alone: syn::File = syn::parse_str(&source)?;
        LoneExpressions.visit_file_mut(&mut alone);
        let mut tokens = Vec::new();
        normalise(alone.to_token_stream(), Delimiter::Brace, false, &mut tokens);
        let shape = self.shapes.entry(format!("{}{name}", place.prefix)).or_default();
        shape.source.push_str(&source);
        shape.tokens.append(&mut tokens);
        Ok(())
    }

    /// The text from the start of one span to the end of another.
    fn between(&self, from: proc_macro2::Span, to: proc_macro2::Span) -> &str {
        &self.text[from.byte_range().start..to.byte_range().end]
    }
}

impl Place {
    fn inside(&self, prefix: &str, header: &str) -> Self {
        Place {
            prefix: format!("{}{prefix}", self.prefix),
            open: format!("{}{header}\n", self.open),
            close: format!("}}\n{}", self.close),
        }
    }
}

/// Takes the braces from a lone expression in a match arm or a closure.
struct LoneExpressions;

impl VisitMut for LoneExpressions {
    fn visit_arm_mut(&mut self, arm: &mut Arm) {
        visit_mut::visit_arm_mut(self, arm);
        unwrap(&mut arm.body);
        arm.comma = Some(Token![,](arm.fat_arrow_token.spans[0]));
    }

    fn visit_expr_closure_mut(&mut self, closure: &mut ExprClosure) {
        visit_mut::visit_expr_closure_mut(self, closure);
        // With a return type the braces are syntax.
        if matches!(closure.output, ReturnType::Default) {
            unwrap(&mut closure.body);
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        // Before the braces are looked at: a log line beside an expression does not keep them.
        block.stmts.retain(|statement| match statement {
            Stmt::Macro(call) => log_line(&call.mac.to_token_stream().into_iter().collect::<Vec<_>>()).is_none(),
            _ => true,
        });
        // The semicolon after a last `return` is formatting too.
        if let Some(Stmt::Expr(Expr::Return(_) | Expr::Break(_) | Expr::Continue(_), semicolon)) =
            block.stmts.last_mut()
        {
            *semicolon = None;
        }
        visit_mut::visit_block_mut(self, block);
    }
}

fn unwrap(body: &mut Expr) {
    if let Expr::Block(ExprBlock { attrs, label: None, block, .. }) = body
        && attrs.is_empty()
        && let [Stmt::Expr(lone, None)] = block.stmts.as_mut_slice()
    {
        *body = std::mem::replace(lone, Expr::Verbatim(TokenStream::new()));
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => attribute.path().is_ident("test"),
    })
}

/// Tokens as a reader writes them in a name: a space only where two words would run into one.
fn compact(tokens: TokenStream) -> String {
    let mut words = Vec::new();
    normalise(tokens, Delimiter::None, false, &mut words);
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    words.iter().fold(String::new(), |mut text, word| {
        if text.ends_with(is_word) && word.starts_with(is_word) {
            text.push(' ');
        }
        text.push_str(word);
        text
    })
}

/// Appends the tokens of what stands inside a delimiter. `arguments` says that they are the arguments of a call or the
/// parameters of a function, where one comma more makes no tuple.
fn normalise(stream: TokenStream, delimiter: Delimiter, arguments: bool, out: &mut Vec<String>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let commas = trees.iter().filter(|tree| is_punct(tree, ',')).count();
    let is_one_tuple = delimiter == Delimiter::Parenthesis && commas == 1 && !arguments;
    let mut statement_begins = delimiter == Delimiter::Brace;
    let mut in_where = false;
    let mut at = 0;
    while at < trees.len() {
        let rest = &trees[at..];
        if let Some(length) = doc_attribute(rest) {
            at += length;
            continue;
        }
        if let Some(length) = log_line(rest) {
            match rest.get(length) {
                Some(next) if statement_begins && is_punct(next, ';') => {
                    at += length + 1;
                    continue;
                }
                None if statement_begins => {
                    at += length;
                    continue;
                }
                next if !statement_begins && next.is_none_or(|next| is_punct(next, ',')) => {
                    out.extend(["(".to_owned(), ")".to_owned()]);
                    at += length;
                    continue;
                }
                _ => {}
            }
        }
        let previous = at.checked_sub(1).map(|before| &trees[before]);
        statement_begins = false;
        match &trees[at] {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                out.push(open.to_owned());
                normalise(group.stream(), group.delimiter(), takes_arguments(previous), out);
                out.push(close.to_owned());
                if group.delimiter() == Delimiter::Brace {
                    statement_begins = true;
                    in_where = false;
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => {
                let is_trailing = match trees.get(at + 1) {
                    None => delimiter != Delimiter::None && !is_one_tuple,
                    Some(TokenTree::Group(next)) => in_where && next.delimiter() == Delimiter::Brace,
                    Some(next) => is_punct(next, '>') || (in_where && is_punct(next, ';')),
                };
                if !is_trailing {
                    out.push(",".to_owned());
                }
            }
            TokenTree::Punct(_) => {
                let run = punct_run(rest);
                at += run.len();
                statement_begins = run.ends_with(';');
                in_where &= !statement_begins;
                split_operators(&run, out);
                continue;
            }
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                in_where |= word == "where";
                out.push(word);
            }
            TokenTree::Literal(literal) => out.push(literal.to_string()),
        }
        at += 1;
    }
}

fn is_punct(tree: &TokenTree, character: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn takes_arguments(previous: Option<&TokenTree>) -> bool {
    match previous {
        Some(TokenTree::Ident(word)) => !KEYWORDS_BEFORE_TUPLE.contains(&word.to_string().as_str()),
        Some(TokenTree::Punct(punct)) => matches!(punct.as_char(), '>' | '!' | '?'),
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Brace,
        _ => false,
    }
}

/// How many tokens a leading `#[doc ..]` or `#![doc ..]` has. Doc comments are such attributes to the compiler.
fn doc_attribute(trees: &[TokenTree]) -> Option<usize> {
    let bang = usize::from(trees.get(1).is_some_and(|tree| is_punct(tree, '!')));
    match (trees.first(), trees.get(1 + bang)) {
        (Some(hash), Some(TokenTree::Group(group))) if is_punct(hash, '#') => {
            let first = group.stream().into_iter().next();
            matches!(first, Some(TokenTree::Ident(word)) if word == "doc").then_some(2 + bang)
        }
        _ => None,
    }
}

/// How many tokens a leading `debug!(..)` or `tracing::debug!(..)` has.
fn log_line(trees: &[TokenTree]) -> Option<usize> {
    let is_ident = |at: usize, names: &[&str]| matches!(trees.get(at), Some(TokenTree::Ident(word)) if names.contains(&word.to_string().as_str()));
    let is = |at: usize, character: char| trees.get(at).is_some_and(|tree| is_punct(tree, character));
    let path = if is_ident(0, &["tracing"]) && is(1, ':') && is(2, ':') { 3 } else { 0 };
    let is_call =
        is_ident(path, &LOG_MACROS) && is(path + 1, '!') && matches!(trees.get(path + 2), Some(TokenTree::Group(_)));
    is_call.then_some(path + 3)
}

/// The punctuation that is written without a gap from the start of `trees` on.
fn punct_run(trees: &[TokenTree]) -> String {
    let mut run = String::new();
    for tree in trees {
        let TokenTree::Punct(punct) = tree else { break };
        if punct.as_char() == ',' && !run.is_empty() {
            break;
        }
        run.push(punct.as_char());
        if punct.spacing() == Spacing::Alone {
            break;
        }
    }
    run
}

/// Takes a run of punctuation apart as the compiler does, longest operator first, so that `x=-1` is `x = -1`.
fn split_operators(mut run: &str, out: &mut Vec<String>) {
    while !run.is_empty() {
        let operator = OPERATORS.iter().find(|operator| run.starts_with(**operator));
        let length = operator.map_or_else(|| run.chars().next().map_or(0, char::len_utf8), |operator| operator.len());
        out.push(run[..length].to_owned());
        run = &run[length..];
    }
}
