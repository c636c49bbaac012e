"""operators.py - the one-line changes that mutate.py makes: which lines of a C file can be changed, and how."""
import re

# Lines that no test of values can see: our own mistakes (assert), what only the compiler reads, what only a failing machine
# shows (clean-up, statuses that are passed on: make fault-injection tests them), hints about speed, more memory than is used,
# and mutual exclusion, whose lack shows once in a million runs (make sanitize-threads tests it).
SKIPPED = re.compile(r'\b(?:assert|static_assert|_Static_assert)\s*\(|^\s*#\s*(?!define)|\b__builtin_prefetch\b|\bmadvise\b|'
                     r'\b(?:\w*_)?(?:free|close|clear|delete|decref|munmap)\(|\bpthread_(?:mutex|cond)_(?:init|lock|unlock)\(|\bcalloc\(1, sizeof|'
                     r'PL_ENOMEM|no_memory|^\s*if \(rc\) (?:return|goto|break)')
STATUS = re.compile(r'^!?\(?rc(?: [=!]= PL_OK)?\)?$')
DECLARES = re.compile(r'^\s*(?:(?:static|const|extern|unsigned|struct|enum|union|inline|typedef|__shared__|register)\s+)*'
                      r'\w+(?:\s+const)?\s*[\s*]\s*\**\w+\s*(?:\[[^]]*\]\s*)*(?:=|;|,)')
STATEMENT = re.compile(r'^\s*[A-Za-z_*(].*;\s*$')
NO_STATEMENT = re.compile(r'^\s*(?:return|goto|case|default|struct|union|enum|typedef|extern|static|const|for|while|do|else)\b')

RELATIONS = {'<': ['<='], '<=': ['<'], '>': ['>='], '>=': ['>'], '==': ['!='], '!=': ['==']}
ARITHMETIC = {'+': ['-'], '-': ['+'], '*': ['+'], '/': ['*'], '%': ['/'], '&': ['|'], '|': ['&'], '<<': ['>>'], '>>': ['<<']}
ASSIGNMENTS = {'+=': ['-=', '='], '-=': ['+=', '='], '*=': ['='], '|=': ['='], '&=': ['|=']}
TWINS = {'fmin': 'fmax', 'fmax': 'fmin', 'fminf': 'fmaxf', 'fmaxf': 'fminf', 'floor': 'ceil', 'ceil': 'floor', 'floorf': 'ceilf',
         'ceilf': 'floorf', 'rint': 'round', 'rintf': 'roundf', 'isnan': 'isinf', 'isfinite': '!isnan', 'fabs': '', 'fabsf': '',
         'INFINITY': '1', 'double': 'float', '__syncthreads': '(void)', '__syncwarp': '(void)'}


def blank(text):
    """The text with comments, strings and characters turned into blanks; every position stays where it was."""
    out, i, n = list(text), 0, len(text)
    while i < n:
        two = text[i:i + 2]
        if two in ('/*', '//'):
            end = text.find('*/', i + 2) + 2 if two == '/*' else text.find('\n', i)
            if end < 2:
                end = n
        elif text[i] in '"\'' and not (text[i] == "'" and i and text[i - 1].isalnum()):
            end = i + 1
            while end < n and text[end] != text[i]:
                end += 2 if text[end] == '\\' else 1
            end += 1
        else:
            i += 1
            continue
        for k in range(i, min(end, n)):
            if out[k] != '\n':
                out[k] = ' '
        i = end
    return ''.join(out)


def closing(line, at):
    """Where the parenthesis that opens at `at` closes; -1 if on another line."""
    depth = 0
    for i in range(at, len(line)):
        depth += (line[i] == '(') - (line[i] == ')')
        if not depth:
            return i
    return -1


def operands(line, start, end):
    """The operands of && or || between two positions: (operator, [(from, to), ...]) or None."""
    depth, cuts, found = 0, [], set()
    for i in range(start, end):
        depth += (line[i] in '([') - (line[i] in ')]')
        if not depth and line[i:i + 2] in ('&&', '||'):
            cuts.append(i)
            found.add(line[i:i + 2])
    if len(found) != 1:
        return None
    edges = [start] + [c + 2 for c in cuts]
    return found.pop(), list(zip(edges, cuts + [end]))


def number(text, sign=1):
    """Another number near this literal."""
    m = re.fullmatch(r'(\d+)([uUlL]*)', text)
    if m:
        return str(max(0, int(m[1]) + sign) if int(m[1]) else 1) + m[2]
    m = re.fullmatch(r'(\d+\.\d*|\d*\.\d+|\d+)(?:e([+-]?\d+))?(f?)', text)
    if not m:
        return None
    if m[2]:
        return '%se%d%s' % (m[1], int(m[2]) + sign * 2, m[3])
    return '%.6g%s%s' % (float(m[1]) * (2 if sign > 0 else 0.5) or 1, '' if float(m[1]) * 2 % 1 else '.0', m[3])


def changes(code, line):
    """All changes of one line: (kind, from, to, text). `code` is the line without its comments and strings."""
    found = []
    if SKIPPED.search(code) or not code.strip():
        return found

    def add(kind, start, end, text):
        if line[start:end] != text:
            found.append((kind, start, end, text))

    define = re.match(r'\s*#\s*define\s+\w+\s+(\S+)', code)
    if code.lstrip().startswith('#'):
        if define and number(define[1]):
            add('constant', define.start(1), define.end(1), number(define[1]))
        return found

    declares, loop = DECLARES.match(code), re.match(r'\s*for\b', code)
    for m in re.finditer(r'(?<=\s)(<<|>>|<=|>=|==|!=|\+=|-=|\*=|\|=|&=|&&|\|\||[-<>+*/%&|])(?=\s)', code):
        op, (start, end) = m[1], m.span(1)
        if op in ('==', '!=') and code[:start].endswith('rc ') and code[end:].startswith(' PL_OK'):
            continue
        for text in RELATIONS.get(op, ()):
            add('comparison', start, end, text)
        for text in ASSIGNMENTS.get(op, ()):
            if not loop:
                add('assignment', start, end, text)
        if op in ('&&', '||') and not re.search(r'!?rc(?: [=!]= PL_OK)? $', code[:start]):
            add('condition', start, end, '||' if op == '&&' else '&&')
        for text in ARITHMETIC.get(op, ()):
            if not (declares and op in '*&' and start < declares.end()):
                add('operator', start, end, text)
        after = re.match(r'\s(\d+)\b(?![.\w])', code[end:])
        if op in '+-' and after:  # off by one: the term goes
            add('off by one', start - 1, end + after.end(), '')
        before, behind = re.search(r'([\w.>\[\]-]+)\s$', code[:start]), re.match(r'\s([\w.>\[\]-]+)', code[end:])
        if op in '-/' and before and behind:
            add('operands', start - len(before[0]), end + behind.end(), '%s %s %s' % (behind[1], op, before[1]))
    for m in re.finditer(r'(?<![\w.])(?:\d+\.?\d*(?:e[+-]?\d+)?[fuUlL]*)(?![\w.])', code):
        if (declares or re.match(r'\s*(?:static |const )*(?:u?int\w*|char|float|double|size_t)\b', code)) and code[:m.start()].endswith('['):
            continue  # an array's size
        if loop and m[0] == '1' and code[:m.start()].rstrip().endswith(('=', '+=')):
            continue
        # A truth of 2 is as true as one of 1.
        truth = m[0] == '1' and re.search(r'(?:\breturn|\b(?:is|has)_\w+ =)\s*$', code[:m.start()])
        for sign in (-1,) if truth else (1, -1):
            text = number(m[0], sign)
            if text:
                add('constant', m.start(), m.end(), text)
    for m in re.finditer(r'\b(if|while)\s*\(', code):
        open_at, close_at = m.end() - 1, closing(code, m.end() - 1)
        if close_at < 0:
            continue
        if m[1] == 'if' and not STATUS.match(line[open_at + 1:close_at]):
            for value in '01':
                add('condition', open_at + 1, close_at, value)
        parts = operands(code, open_at + 1, close_at)
        if parts:
            for k, (start, end) in enumerate(parts[1]):
                if STATUS.match(line[start:end].strip()):
                    continue
                kept = [line[a:b].strip() for i, (a, b) in enumerate(parts[1]) if i != k]
                add('condition', open_at + 1, close_at, (' %s ' % parts[0]).join(kept))
    for m in re.finditer(r'\?\s+([^?:;,()]+(?:\([^()]*\))?)\s+:\s+([^?:;,()]+(?:\([^()]*\))?)', code):
        if line[m.start(1):m.end(1)] != 'rc':
            add('operands', m.start(1), m.end(2), '%s : %s' % (line[m.start(2):m.end(2)], line[m.start(1):m.end(1)]))
    for m in re.finditer(r'(?<![\w.>])([a-zA-Z_]\w*)\(([\w.>-]+), ([\w.>-]+)\)', code):
        add('operands', m.start(2), m.end(3), '%s, %s' % (m[3], m[2]))
    for m in re.finditer(r'\bfmaf?\(([\w.>\[\]-]+), ([\w.>\[\]-]+), ([\w.>\[\]-]+)\)', code):
        add('rounding', m.start(), m.end(), '(%s * %s + %s)' % (m[1], m[2], m[3]))
    for m in re.finditer(r'\b(%s)\b' % '|'.join(TWINS), code):
        if m[1] != 'double' or not re.search(r'\(\s*$', code[:m.start()]):
            add('function', m.start(), m.end(), TWINS[m[1]])
    for m in re.finditer(r'(?<![\w)\]!])!(?!rc\b)(?=[\w(*])', code):
        add('condition', m.start(), m.end(), '')
    for m in re.finditer(r'\(float\)(?=[\w(])', code):
        add('rounding', m.start(), m.end(), '')
    indent = len(code) - len(code.lstrip())
    if STATEMENT.match(code) and not declares and not NO_STATEMENT.match(code) and code.count('(') == code.count(')'):
        add('statement', indent, len(code.rstrip()), ';')
    return found
