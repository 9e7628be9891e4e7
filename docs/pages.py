#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the manual pages of section 3 from what doxygen has read in the public headers.

Doxygen understands the headers and their comments; here is only how a page is laid out. There is a
page for each function, struct, enum and callback that has a comment, in mdoc(7), as are the pages
that are written by hand. A function's @param, @return, @retval and @see become the sections that
they have in any manual, and "@par Example" with the code behind it the section EXAMPLES. What all
functions have in common is told here and not in every comment. What to do about each error is taken
from libshare(7), and its name leads to the page of all of them.

    pages.py XML-FOLDER DATE OUTPUT-FOLDER [--strict]

Says where something of a page is not told: a parameter, a value that is returned, a member of a
struct. With --strict it fails then.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

COMMON = ("As any function: `SHARE_EINVAL` for an argument that cannot be right, `SHARE_EFORK` in a "
          "forked child, `SHARE_EDISCONNECTED` when the broker is needed and gone, `SHARE_ENOMEM` "
          "when the process has no memory, `SHARE_ESYSTEM` when a system call failed.")
DETAIL = "share_error_detail() then has a sentence with the names and figures of the case."

faults = []


def fault(member, what):
    place = member.find("location")
    faults.append(f"{place.get('file')}:{place.get('line')}: {member.findtext('name')}: {what}")


# What a word is in C, and which macro of mdoc(7) it takes. Everything else is plain text.
WORDS = [
    (re.compile(r"<(share/\w+\.h)>"), "In"),
    (re.compile(r"(SHARE_E[A-Z]+)"), "Er"),
    (re.compile(r"((?:SHARE|UINT\d+|RLIMIT)_[A-Z0-9_]+|NULL)"), "Dv"),
    (re.compile(r"([a-z_]\w*)\(\)"), "Fn"),
    (re.compile(r"(share_\w+)"), "Vt"),
    (re.compile(r"([\w.-]+)\(([1-8])\)"), "Xr"),
]
QUOTED = re.compile(r"`([^`]*)`")
WORD = re.compile(r"^([(\[\"]*)(.*?)([])\"]*(?:'s)?[].,:;?!)\"]*)$")


def escape(text):
    text = re.sub(r"(?<!\w)-(?=\d)", "\\-", text.replace("\\", "\0")).replace("\0", "\\e")
    return text


def argument(text):
    """Text as one argument of a macro."""
    text = escape(text).replace('"', "\\(dq")
    if re.fullmatch(r"[]().,:;?!|[]+", text) or re.match(r"[A-Z][a-z]$", text):
        text = "\\&" + text
    return f'"{text}"' if " " in text else text


class Page:
    """The lines of a page. Words that have a page of their own are links to it."""

    date = ""
    names = set()  # of all pages
    types = set()
    macros = set()
    texts = {}  # of errors, by their names
    advice = {}  # the same: lines of libshare(7)

    def __init__(self, name, parameters=()):
        self.name = name
        self.parameters = parameters
        self.lines = []

    def line(self, line):
        self.lines.append("\\&" + line if line[:1] in (".", "'") else line)

    def macro(self, *words):
        self.lines.append("." + " ".join(words))

    def section(self, title):
        self.macro("Sh", title)

    def special(self, word, quoted):
        """The macro that a word takes, with its argument; None for a plain one."""
        if quoted and word in self.parameters:
            return ["Fa", word]
        for pattern, macro in WORDS:
            match = pattern.fullmatch(word)
            if not match:
                continue
            name = match.group(1)
            if macro in ("Fn", "Vt") and name in Page.names and name != self.name:
                return ["Xr", name, "3"]
            return [macro, *match.groups()]
        return ["Ql", argument(word)] if quoted else None

    def text(self, text):
        """A paragraph; `code` is marked as in Markdown."""
        # what is quoted is one word
        text = QUOTED.sub(lambda m: "`" + m.group(1).replace(" ", "\1") + "`", text)
        line = ""
        for raw in text.split():
            before, word, after = WORD.match(raw).groups()
            if word.endswith("(") and after.startswith(")"):  # the () of a function is its own
                word, after = word + ")", after[1:]
            section = re.fullmatch(r"[\w.-]+\([1-8]", word)
            if section and after.startswith(")"):
                word, after = word + ")", after[1:]
            quoted = QUOTED.fullmatch(word)
            word = (quoted.group(1) if quoted else word).replace("\1", " ")
            special = self.special(word, bool(quoted))
            if not special:
                raw = escape(raw)
                if line and len(line) + len(raw) > 76:
                    self.line(line)
                    line = ""
                line = f"{line} {raw}" if line else raw
                if re.search(r"[.?!]$", raw):
                    self.line(line)
                    line = ""
                continue
            if before:
                line = f"{line} {before}" if line else before
            if line:
                self.line(line + ("\\c" if before else ""))
                line = ""
            if re.fullmatch(r"[].,:;?!)]*", after):
                self.macro(*special, *after)
            else:
                self.macro(*special, "Ns", argument(after))
        if line:
            self.line(line)

    def code(self, text):
        self.macro("Bd", "-literal", "-offset", "indent")
        for line in text.strip("\n").split("\n"):
            self.line(line.replace("\\", "\\e"))
        self.macro("Ed")

    def blocks(self, blocks, first=False):
        """Paragraphs, lists and code, as content() gives them."""
        for kind, content in blocks:
            if kind == "text":
                if not first:
                    self.macro("Pp")
                self.text(content)
            elif kind == "code":
                self.code(content)
            elif kind == "lines":
                self.lines += content
            else:
                self.macro("Bl", "-bullet", *(["-compact"] if first else []))
                for item in content:
                    self.macro("It")
                    self.blocks(item, first=True)
                self.macro("El")
            first = False

    def more(self, other):
        """Puts the description of another page into this one, behind its own."""
        start, end = (other.lines.index(f".Sh {title}") for title in ("DESCRIPTION", "SEE ALSO"))
        at = next(i for i, line in enumerate(self.lines)
                  if line.startswith(".Sh") and i > self.lines.index(".Sh DESCRIPTION"))
        self.lines[at:at] = [".Pp", *other.lines[start + 1:end]]

    def list(self, items):
        """Labels (as the words of a macro) and what each is."""
        short = all(told and len(told[0][1]) < 48 and len(told) == 1 for _, told in items)
        self.macro("Bl", "-tag", "-width", "Ds", *(["-compact"] if short and len(items) > 8 else []))
        for label, blocks in items:
            self.macro("It", *label)
            self.blocks(blocks, first=True)
        self.macro("El")


# ------------------------------------------------------------------------------------------------
# What doxygen says

LISTS = ("itemizedlist", "orderedlist")
CODE = ("programlisting", "verbatim", "preformatted")
SECTIONS = ("parameterlist", "simplesect")
CHARACTERS = {"ndash": "--", "mdash": "---", "nonbreakablespace": " ", "sp": " "}


def inline(element):
    """The text in an element; code is marked as in Markdown."""
    parts = [element.text or "", CHARACTERS.get(element.tag, "")]
    for child in element:
        parts += [inline(child), child.tail or ""]
    text = "".join(parts)
    return f"`{text}`" if element.tag == "computeroutput" else text


def code_of(element):
    lines = element.findall("codeline")
    return "\n".join(map(inline, lines)) if lines else inline(element)


def content(element):
    """What is told in an element, as a list of ("text", str), ("code", str) and ("list", [content,
    ...]). Sections such as @param are left out."""
    told = []

    def text(words):
        words = re.sub(r"\s+", " ", words).strip()
        if words:
            told.append(("text", words))

    for para in element.findall("para") if element is not None else ():
        words = para.text or ""
        for child in para:
            if child.tag in LISTS + CODE + SECTIONS:
                text(words)
                words = ""
            if child.tag in LISTS:
                told.append(("list", [content(item) for item in child.findall("listitem")]))
            elif child.tag in CODE:
                told.append(("code", code_of(child)))
            elif child.tag not in SECTIONS:
                words += inline(child)
            words += child.tail or ""
        text(words)
    return told


def content_of(text):
    return [("text", text)]


class Comment:
    """A member's comment, taken apart."""

    def __init__(self, member):
        detailed = member.find("detaileddescription")
        self.told = content(detailed)
        self.parameters = self.pairs(detailed, "param")
        self.values = self.pairs(detailed, "retval")
        self.returns, self.see, self.examples = [], [], []
        for section in detailed.iter("simplesect"):
            if section.get("kind") == "return":
                self.returns += content(section)
            elif section.get("kind") == "see":
                self.see += re.findall(r"share_\w+", inline(section))
            elif section.findtext("title", "").startswith("Example"):
                self.examples += content(section)
        first = self.told[0][1] if self.told and self.told[0][0] == "text" else ""
        self.title = re.split(r"[.](?= |$)", first, maxsplit=1)[0]
        if len(self.title) > 72:
            self.title = re.split(r"[:;](?= )", self.title, maxsplit=1)[0]

    @staticmethod
    def pairs(detailed, kind):
        """What is told of each @param or @retval; of one that is there twice, the last."""
        found = {}
        for each in detailed.iter("parameterlist"):
            for item in each.findall("parameteritem") if each.get("kind") == kind else ():
                for name in item.iter("parametername"):
                    found[inline(name).strip()] = content(item.find("parameterdescription"))
        return found


def declaration(kind, name, rest):
    """A parameter or member as it is declared: "share_buffer **out"."""
    kind = re.sub(r"\* (?=\w)", "*", kind.strip())
    if "(*)" in kind:
        return re.sub(r" ?\(\*\)", f" (*{name})", kind)
    return f"{kind}{'' if kind.endswith('*') else ' '}{name}{rest}"


# ------------------------------------------------------------------------------------------------
# Pages


def begin(name, comment, header, parameters=()):
    page = Page(name, parameters)
    title = re.sub(r"`", "", comment.title)
    if not re.match(r"[A-Z]{2}|\W", title):
        title = title[:1].lower() + title[1:]
    page.lines.append(f'.\\" Made from the comment in <{header}>: change that.')
    page.macro("Dd", Page.date)
    page.macro("Dt", name.upper(), "3")
    page.macro("Os")
    page.section("NAME")
    page.macro("Nm", name)
    page.macro("Nd", escape(title))
    page.section("SYNOPSIS")
    page.macro("In", header)
    return page


def end(page, comment, related):
    page.section("SEE ALSO")
    for name in sorted((set(comment.see) | set(related)) & Page.names - {page.name}):
        page.macro("Xr", name, "3", ",")
    page.macro("Xr", "libshare", "7")
    return page


def function_page(member, header):
    comment = Comment(member)
    name = member.findtext("name")
    result = inline(member.find("type")).strip()
    params = [(p.findtext("declname"), p) for p in member.findall("param") if p.find("declname") is not None]
    page = begin(name, comment, header, [each for each, _ in params])
    if member.get("kind") == "function":
        page.macro("Ft", argument(result))
    else:  # a callback is a pointer to a function
        result = re.sub(r"\s*\(\*$", "", result)
        page.macro("Ft", argument("typedef " + result))
        params = [(re.search(r"\w+$", each).group(), each)
                  for each in member.findtext("argsstring").strip(")(").split(", ")]
        page.parameters = [each for each, _ in params]
    page.macro("Fo", name if member.get("kind") == "function" else f'"(*{name})"')
    for each, p in params:
        page.macro("Fa", argument(p if isinstance(p, str) else declaration(
            inline(p.find("type")), each, p.findtext("array") or p.findtext("argsstring") or "")))
    page.macro("Fc")

    page.section("DESCRIPTION")
    page.blocks(comment.told, first=True)
    names = {each for each, _ in params}
    for each in names ^ {name for name, told in comment.parameters.items() if told}:
        fault(member, f"the parameter {each} is not {'told' if each in names else 'there'}")
    if params:
        page.macro("Pp")
        page.line("The arguments are:")
        page.list([(("Fa", each), comment.parameters.get(each, [])) for each, _ in params])

    errors = {k: v for k, v in comment.values.items() if k.startswith("SHARE_E")}
    values = {k: v for k, v in comment.values.items() if k not in errors}
    fails = bool(errors) or "negative error" in str(comment.returns) or (
        result == "int" and not comment.returns and not values)
    if result == "void" and (comment.values or comment.returns):
        fault(member, "it returns nothing, and it is told what")
    if result != "void":
        page.section("RETURN VALUES")
        page.blocks(comment.returns, first=True)
        if fails and not comment.returns and "0" not in values:
            page.line("0, or a negative error.")
        elif not values and not comment.returns:
            fault(member, "what it returns is not told")
        if values:
            page.list([(page.special(k, True), v) for k, v in values.items()])
    if comment.examples:
        page.section("EXAMPLES")
        page.blocks(comment.examples, first=True)
    if fails:
        page.section("ERRORS")
        if errors:
            page.list([(("Er", k), v) for k, v in errors.items()])
            page.macro("Pp")
        page.text(COMMON)
        page.text(DETAIL)
    related = set(re.findall(r"share_\w+", ElementTree.tostring(member, encoding="unicode")))
    return end(page, comment, related & Page.types)


def values_of(enum):
    """What each value of an enum is for; failing that, the number that it stands for."""
    items = []
    for value in enum.findall("enumvalue"):
        name = value.findtext("name")
        told = content(value.find("detaileddescription")) or Page.texts.get(name) or \
            content_of(value.findtext("initializer", "").strip("= "))
        if name in Page.advice:
            told = [(kind, text + ".") for kind, text in told] + [("lines", Page.advice[name])]
        items.append((("Dv", name), told))
    return items


def members_of(struct, initialiser):
    """The members of a struct, and what each is."""
    items = []
    for member in struct.iter("memberdef"):
        name = member.findtext("name")
        told = content(member.find("detaileddescription"))
        if not told and name == "size" and initialiser in Page.macros:
            told = content_of(f"of this struct, in bytes, as `{initialiser}` sets it")
        if not told:
            fault(member, "the member is not told")
        kind = declaration(inline(member.find("type")), name, member.findtext("argsstring") or "")
        items.append((("Va", argument(kind)), told))
    return items


def type_page(member, header, users):
    """Of a struct, an enum, or a handle: a struct whose members are the library's."""
    comment = Comment(member)
    kind = member.get("kind")
    name = member.findtext("name") or member.findtext("compoundname")
    initialiser = name.upper() + "_INIT"
    page = begin(name, comment, header)
    declared = {"enum": f"enum {name};", "typedef": f"typedef struct {name} {name};"}.get(
        kind, f"{name} a = {initialiser};" if initialiser in Page.macros else f"{name} a;")
    page.macro("Vt", argument(declared))
    page.section("DESCRIPTION")
    page.blocks(comment.told, first=True)
    if kind != "typedef":
        page.macro("Pp")
        page.line("Its values are:" if kind == "enum" else "Its members are:")
        page.list(values_of(member) if kind == "enum" else members_of(member, initialiser))
    return end(page, comment, users)


def advice_of(page):
    """What a page written by hand says of each error: lines, by the error's name."""
    codes = page.partition(".Sh ERROR CODES\n")[2].partition("\n.El")[0]
    items = re.split(r"^\.It Er (SHARE_E\w+)\n", codes, flags=re.MULTILINE)
    return {name: lines.rstrip("\n").split("\n") for name, lines in zip(items[1::2], items[2::2])}


def main():
    folder, Page.date, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    Page.advice = advice_of(Path(__file__).with_name("libshare.7").read_text())
    functions, types = {}, {}
    for file in sorted(folder.glob("*_8h.xml")):
        header = ElementTree.parse(file).getroot().find("compounddef")
        place = "share/" + header.findtext("compoundname")
        for inner in header.findall("innerclass"):
            struct = ElementTree.parse(folder / (inner.get("refid") + ".xml")).getroot()
            types[inner.text] = struct.find("compounddef"), place
        for member in header.iter("memberdef"):
            kind, name = member.get("kind"), member.findtext("name")
            if kind == "define":
                Page.macros.add(name)
                table = inline(member.find("initializer"))
                for error in re.finditer(r'X\((SHARE_E\w+), (-\d+), "(.*?)"\)', table):
                    Page.texts[error[1]] = content_of(f"{error[2]}: {error[3]}")
            elif kind == "function" or (kind == "typedef" and member.findtext("argsstring")):
                functions[name] = member, place
            elif kind == "enum" or (kind == "typedef" and Comment(member).title):
                types.setdefault(name, (member, place))
    Page.names = functions.keys() | types.keys()
    Page.types = types.keys() | {name for name in functions if name.endswith("_callback")}

    output.mkdir(parents=True, exist_ok=True)
    for name, (member, place) in {**types, **functions}.items():
        if not Comment(member).title:
            fault(member, "it has no comment")
        if name not in functions:
            page = type_page(member, place, {each for each, (user, _) in functions.items() if any(
                re.search(rf"\b{name}\b", inline(p)) for p in user.findall("param/type"))})
        else:
            page = function_page(member, place)
            if name in types:  # an enum of the same name
                page.more(type_page(*types[name], ()))
        (output / f"{name}.3").write_text("\n".join(page.lines) + "\n")
    for name in Page.texts:
        link = output / f"{name}.3"
        link.unlink(missing_ok=True)
        link.symlink_to("share_error.3")
    print("\n".join(sorted(set(faults))), file=sys.stderr, end="\n" if faults else "")
    sys.exit(1 if faults and "--strict" in sys.argv else 0)


main()
