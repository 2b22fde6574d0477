"""What the command of a simulated container does, for the few commands that tests and examples use.

No process runs on a simulated node. A small part of the shell language is understood, alone and in ``sh -c``: sequences
(``;``, ``&&``, ``||``, lines), ``if``, assignments, variables, quotes, ``$(...)`` and ``$((...))``, and the commands
``true``, ``false``, ``sleep``, ``echo``, ``exit``, ``expr`` and ``test`` (``[`` and ``[[``) with strings and numbers. A
command that reaches anything else, such as a program, a file or a variable without a known value, is unknown.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([smhd]?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_COMPOUNDS = frozenset(("while", "until", "for", "case", "function", "select", "do", "done", "time"))
_LIMIT = 4096


class UnknownScript(Exception):
    """The script does something whose effect is not known."""


class ScriptResult(NamedTuple):
    """How long a script runs in seconds (infinity: it does not exit), its exit code, and its output."""

    duration: float
    exit_code: int
    output: str = ""


class _Part(NamedTuple):
    """A part of a word: text, or with ``kind`` ``$`` a variable, ``(`` a command, ``((`` an arithmetic expression."""

    kind: str
    text: str
    is_quoted: bool


class _Word(NamedTuple):
    parts: tuple[_Part, ...]

    @property
    def literal(self) -> str:
        """The word if it is neither quoted nor expanded, as keywords are."""
        is_literal = not any(part.kind or part.is_quoted for part in self.parts)
        return "".join(part.text for part in self.parts) if is_literal else ""


_Token = str | _Word
_Node = Callable[["_Shell"], int]


def run_script(script: str, variables: Mapping[str, str]) -> ScriptResult:
    """What a shell does with a script and these variables. Raises UnknownScript."""
    if len(script) > _LIMIT:
        raise UnknownScript
    node = _parsed(script)
    shell = _Shell(dict(variables))
    try:
        code = node(shell)
    except _Exit as exited:
        code = exited.code
    return ScriptResult(shell.duration, code, shell.output)


def run_command(arguments: Sequence[str]) -> ScriptResult:
    """What a command without a shell does. Raises UnknownScript."""
    shell = _Shell({})
    try:
        code = shell.run(arguments)
    except _Exit as exited:
        code = exited.code
    return ScriptResult(shell.duration, code, shell.output)


# Reading


@lru_cache(maxsize=256)
def _parsed(script: str) -> _Node:
    return _Parser(_tokens(script)).script()


def _tokens(script: str) -> list[_Token]:
    tokens: list[_Token] = []
    parts: list[_Part] = []
    position = 0

    def end_word() -> None:
        if parts:
            tokens.append(_Word(tuple(parts)))
            parts.clear()

    while position < len(script):
        character, two = script[position], script[position : position + 2]
        if two in ("&&", "||"):
            end_word()
            tokens.append(two)
            position += 2
        elif character in ";\n":
            end_word()
            tokens.append(";")
            position += 1
        elif character.isspace() or two == "\\\n":
            end_word()
            position += 1 if character.isspace() else 2
        elif character == "#" and not parts:
            position = script.find("\n", position) if "\n" in script[position:] else len(script)
        elif character == "'":
            end = _end(script, "'", position + 1)
            parts.append(_Part("", script[position + 1 : end], is_quoted=True))
            position = end + 1
        elif character == '"':
            position = _read_double_quotes(script, position + 1, parts)
        elif character == "$":
            position = _read_expansion(script, position + 1, parts, is_quoted=False)
        elif character in "&|<>`(){}*?#\\":
            raise UnknownScript
        else:
            parts.append(_Part("", character, is_quoted=False))
            position += 1
    end_word()
    return tokens


def _end(script: str, closing: str, start: int) -> int:
    end = script.find(closing, start)
    if end < 0:
        raise UnknownScript
    return end


def _read_double_quotes(script: str, position: int, parts: list[_Part]) -> int:
    """Read up to the closing quote; the position after it."""
    parts.append(_Part("", "", is_quoted=True))
    while position < len(script):
        character = script[position]
        if character == '"':
            return position + 1
        if character in "`\\":
            break
        if character == "$":
            position = _read_expansion(script, position + 1, parts, is_quoted=True)
        else:
            parts.append(_Part("", character, is_quoted=True))
            position += 1
    raise UnknownScript


def _read_expansion(script: str, position: int, parts: list[_Part], *, is_quoted: bool) -> int:
    """Read a variable, command or expression after a ``$``; the position after it."""
    if script.startswith("((", position):
        end = _end(script, "))", position)
        parts.append(_Part("((", script[position + 2 : end], is_quoted))
        return end + 2
    if script.startswith("(", position):
        end = _end(script, ")", position)
        parts.append(_Part("(", script[position + 1 : end], is_quoted))
        return end + 1
    braced = script.startswith("{", position)
    name = _NAME.match(script, position + braced)
    if name is None or (braced and not script.startswith("}", name.end())):
        raise UnknownScript
    parts.append(_Part("$", name[0], is_quoted))
    return name.end() + braced


class _Parser:
    """Turns tokens into functions of a shell that return the exit code."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._next = tokens, 0

    def script(self) -> _Node:
        node = self._list(())
        if self._next < len(self._tokens):
            raise UnknownScript
        return node

    def _keyword(self) -> str:
        """The next token if it is a word without quotes and expansions."""
        token = self._tokens[self._next] if self._next < len(self._tokens) else ""
        return token.literal if isinstance(token, _Word) else ""

    def _expect(self, keyword: str) -> None:
        if self._keyword() != keyword:
            raise UnknownScript
        self._next += 1

    def _operator(self) -> str:
        token = self._tokens[self._next] if self._next < len(self._tokens) else ""
        return token if isinstance(token, str) else ""

    def _list(self, ends: Sequence[str]) -> _Node:
        """Commands up to a keyword of ``ends``, or to the end."""
        nodes: list[_Node] = []
        while True:
            while self._operator() == ";":
                self._next += 1
            if self._next == len(self._tokens) or self._keyword() in ends:
                break
            left = self._command()
            while (joined_by := self._operator()) in ("&&", "||"):
                self._next += 1
                left = _joined(left, joined_by, self._command())
            nodes.append(left)
            if self._operator() not in (";", "") or (self._operator() == "" and self._next < len(self._tokens)):
                raise UnknownScript
        if not nodes:
            raise UnknownScript
        return lambda shell: [node(shell) for node in nodes][-1]

    def _command(self) -> _Node:
        if self._keyword() == "if":
            self._next += 1
            node = self._if()
            self._expect("fi")
            return node
        words: list[_Word] = []
        while self._next < len(self._tokens) and isinstance(token := self._tokens[self._next], _Word):
            words.append(token)
            self._next += 1
        if not words or words[0].literal in _COMPOUNDS or words[0].literal in ("then", "else", "elif", "fi"):
            raise UnknownScript
        return lambda shell: shell.run_words(words)

    def _if(self) -> _Node:
        condition = self._list(("then",))
        self._expect("then")
        then, otherwise = self._list(("elif", "else", "fi")), None
        if self._keyword() == "elif":
            self._next += 1
            otherwise = self._if()
        elif self._keyword() == "else":
            self._next += 1
            otherwise = self._list(("fi",))
        return lambda shell: then(shell) if condition(shell) == 0 else 0 if otherwise is None else otherwise(shell)


def _joined(left: _Node, joined_by: str, right: _Node) -> _Node:
    def node(shell: _Shell) -> int:
        code = left(shell)
        return right(shell) if (code == 0) == (joined_by == "&&") else code

    return node


# Running


class _Exit(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


class _Shell:
    """The variables of a shell, the time that has passed and what has been printed."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self._last_code = 0
        self.duration, self.output = 0.0, ""

    def run_words(self, words: list[_Word]) -> int:
        name, equals, _ = "".join(part.text for part in words[0].parts if not part.kind).partition("=")
        if len(words) == 1 and equals and _NAME.fullmatch(name) and not words[0].parts[0].kind:
            self._variables[name] = "".join(map(self._expanded, words[0].parts)).partition("=")[2]
            return 0
        self._last_code = self.run([field for word in words for field in self._fields(word)])
        return self._last_code

    def _fields(self, word: _Word) -> list[str]:
        """The word expanded; without quotes an empty one disappears."""
        text = "".join(map(self._expanded, word.parts))
        return [text] if text or any(part.is_quoted for part in word.parts) else []

    def _expanded(self, part: _Part) -> str:
        if not part.kind:
            return part.text
        if part.kind == "$":
            if part.text not in self._variables:
                raise UnknownScript
            text = self._variables[part.text]
        elif part.kind == "((":
            expanded = _NAME.sub(lambda name: self._expanded(_Part("$", name[0], is_quoted=True)), part.text)
            text = str(_arithmetic(expanded.replace("$", "")))
        else:
            result = run_script(part.text, self._variables)
            self.duration += result.duration
            text = result.output.rstrip("\n")
        if not part.is_quoted and len(text.split()) > 1:
            raise UnknownScript
        return text if part.is_quoted else text.strip()

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command; its exit code."""
        if not arguments:
            raise UnknownScript
        match arguments[0].rpartition("/")[2], *arguments[1:]:
            case ["true" | ":", *_]:
                return 0
            case ["false", *_]:
                return 1
            case ["exit"]:
                raise _Exit(self._last_code)
            case ["exit", code] if code.isdecimal() and int(code) < 256:
                raise _Exit(int(code))
            case ["echo", *words] if not words or not words[0].startswith("-"):
                self.output += " ".join(words) + "\n"
                return 0
            case ["sleep", *durations] if durations:
                self.duration += sum(map(_seconds, durations))
                return 0
            case ["expr", *terms]:
                result = _arithmetic(" ".join(terms))
                self.output += f"{result}\n"
                return int(result == 0)
            case ["test", *terms]:
                return int(not _test(terms))
            case ["[", *terms, "]"] | ["[[", *terms, "]]"]:
                return int(not _test(terms))
        raise UnknownScript


def _seconds(text: str) -> float:
    if text in ("infinity", "inf"):
        return float("inf")
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UnknownScript
    return float(match[1]) * _UNITS[match[2]]


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge,
}  # fmt: skip


def _test(terms: Sequence[str]) -> bool:
    match terms:
        case ["!", *rest]:
            return not _test(rest)
        case [left, "=" | "==", right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, comparison, right] if comparison in _COMPARISONS:
            if not _INTEGER.fullmatch(left) or not _INTEGER.fullmatch(right):
                raise UnknownScript
            return _COMPARISONS[comparison](int(left), int(right))
        case ["-z", text]:
            return not text
        case ["-n", text] | [text]:
            return bool(text)
        case []:
            return False
    raise UnknownScript


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    # A shell rounds towards zero.
    ast.Div: lambda left, right: abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1),
    ast.Mod: lambda left, right: abs(left) % abs(right) * (1 if left >= 0 else -1),
}


def _arithmetic(expression: str) -> int:
    """The value of an expression of integers. Raises UnknownScript."""
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        raise UnknownScript from None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
    raise UnknownScript


ContainerCommand = ScriptResult

_SHELLS = ("ash", "bash", "dash", "sh")
_FIELD = re.compile(r"metadata\.(?:(name|namespace|uid)|(labels|annotations)\['([^']+)'\])")
#: A reference to an environment variable in arguments, which the kubelet expands.
_REFERENCE = re.compile(r"\$(\$\([^)]*\)|\(([^)]*)\))")


def command_of(container: Mapping[str, Any], metadata: Mapping[str, Any]) -> ContainerCommand | None:
    """What the command of a container does; None if it has none or an unknown one.

    ``metadata`` is that of the pod, to which environment variables may refer.
    """
    if not container.get("command") and not container.get("args"):
        return None
    # The environment variables whose value is known: those with a value, or of a field of the metadata.
    variables: dict[str, str] = {}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if source:
            field = _FIELD.fullmatch((source.get("fieldRef") or {}).get("fieldPath", ""))
            if field is not None:
                found = metadata.get(field[1]) if field[1] else (metadata.get(field[2]) or {}).get(field[3])
                variables |= {} if found is None else {variable["name"]: str(found)}
        else:
            variables[variable["name"]] = _expanded(variable.get("value", ""), variables)
    arguments = [*(container.get("command") or ()), *(container.get("args") or ())]
    arguments = [_expanded(argument, variables) for argument in arguments]
    try:
        if arguments[0].rpartition("/")[2] not in _SHELLS:
            return run_command(arguments)
        if len(arguments) == 3 and arguments[1] == "-c":
            return run_script(arguments[2], variables)
    except UnknownScript:
        pass
    return None


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced by the variable, and ``$$(NAME)`` by ``$(NAME)``; other references stay."""

    def value(reference: re.Match[str]) -> str:
        if reference[2] is None:
            return reference[1]
        return variables.get(reference[2], reference[0])

    return _REFERENCE.sub(value, text)
