"""Small expressions, each about one feature; make_template_fixtures.py renders them with CONTEXT.

One a line, to be put between {{ and }}. The C++ engine must print the same or fail alike. Whole
templates are in template_statements.py.
"""

CONTEXT = {
    "s": "Hello World",
    "blank": " \t\u2003x y\u00a0\n",
    "uni": "Stra\u00dfe \u0130\u03a3 \u039f\u0394\u039f\u03a3 na\u00efve \U0001f600",
    "html": "<a href='x'>&\"</a>",
    "empty": "",
    "csv": "a,b,,c",
    "lines": "one\ntwo\r\nthree\n\nfour",
    "n": 7, "neg": -3, "zero": 0, "f": 2.5, "tiny": 1e-07, "huge": 1e22, "big": 123456789012345678901234567890,
    "t": True, "nil": None,
    "xs": [3, 1, 2], "words": ["b", "A", "c", "a"], "mixed": [1, "x", None, True, 2.0, [1], {"k": "v"}],
    "none_list": [], "d": {"b": 1, "a": "two", "items": 3, "n": None}, "deep": {"x": {"y": [{"z": "deep"}]}},
    "users": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cyd", "age": 30, "tags": []}],
    "msgs": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "bye"}],
    "quote": "it's \"so\" \\ \n\t\u0007\u00ad\u2028",
}

EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3
7 / 2, 6 / 2, 1 / 3
7.5 // 2, -7.5 // 2, 7.5 % 2, -7.5 % 2, 7 % -2.5
2 ** 3 ** 2, 2 ** -1, 2.0 ** 0.5, (-2) ** 2, -2 ** 2
1 + true, true + true, -true, +true
9223372036854775807, 9223372036854775808, -9223372036854775808
big, -big, big == big, big > n, -big < neg, big > f, big * 1.0
1_000 + 0x1F + 0o17 + 0b11
1.5e3, 1E-2, 1_0.5
1 / 0
1 // 0
1 % 0
1.0 / 0
'a' + 'b' ~ 'c' ~ 1 ~ none ~ true ~ 2.0
'a' + 1
1 + 'a'
'ab' * 3, 3 * 'ab', 'ab' * 0, 'ab' * -1
[1] * 2, [1] + [2], (1,) + (2,), (1, 2) * 2
[1] + (2,)
'a' 'b' "c"
'x' < 'y', 'x' > 'y', 'Z' < 'a', 'a' <= 'a', 'a' >= 'b'
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0 == true, 3 > 2 > 1 > 0
1 < 'a'
none < 1
[1, 2] < [1, 3], [1] < [1, 0], (1, 2) > (1,)
[1, 2] == [1, 2], [1, 2] == (1, 2), {'a': 1} == {'a': 1.0}, {'a': 1, 'b': 2} == {'b': 2, 'a': 1}
1 == '1', none == none, none == false, missing == missing, missing == none, '' == missing
'ell' in s, 'xyz' in s, 'x' not in s, '' in s
1 in xs, 9 in xs, true in xs, 'a' in d, 'zz' in d, 1 in (1, 2), 2 not in [1]
1 in 'abc'
'a' in 5
'a' in none
'a' in missing
[1] in d
not 1, not 0, not '', not [], not none, not missing, not not 1
1 and 2, 0 and 2, 1 or 2, 0 or 2, '' or none or 'x', 1 and '' or 'z'
not 1 == 2, not (1 and 0)
'y' if t else 'n'
'y' if not t
('y' if zero) is defined
'a' if zero else 'b' if t else 'c'
('a' if zero else 'b') + 'c'
[1, 2, [3]], (1,), (), (1, 2), {}, {'a': 1, 'b': [2]}, {1: 2, none: 3, true: 4}
[1, 2, ], (1, 2, ), {'a': 1, }
{'a': 1, 'a': 2}, {1: 'x', 1.0: 'y', true: 'z'}
{[1]: 2}
xs[0], xs[-1], xs[5] is defined, xs['0'] is defined, xs.0, xs[true]
s[0], s[-1], s[100] is defined, uni[4], s[1:3], s[:-1], s[::2], s[::-1], s[5:1], s[-3:], s[:], uni[::-1]
xs[1:], xs[:1], xs[::-1], xs[5:], xs[-2:], (1, 2, 3)[1:], xs[::2], xs[2:0:-1], xs[:-10], xs[-10:2]
xs[::0]
xs['a':]
d[1:2]
missing[1:2]
xs[none:2], xs[1:none], xs[0:2:none]
d.a, d['a'], d.zz is defined, d['zz'] is defined, d.n is none
d.items, 'x'
d['items'], d.get('items'), d.items() | list
d.keys() | list, d.values() | list, d.get('zz'), d.get('zz', 5), d.get('a', 5)
d.items(), d.keys(), d.values()
d.pop is defined, d.update is defined, xs.append is defined, d.nothing
d.pop('a')
xs.append(1)
deep.x.y[0].z, deep['x']['y'][0]['z'], deep.x.q is defined
deep.q.z
deep.q['z']
missing.x
missing['x']
missing
missing()
missing + 1
-missing
missing < 1
missing ~ 'x'
missing | length, missing | list, missing | string, missing | upper, missing | default('d'), missing | trim
missing | tojson
nil, nil | string, nil | trim, nil ~ '', nil | default('d'), nil | default('d', true)
nil.x is defined, nil['x'] is defined, n.x is defined, s.x is defined, xs.x is defined
nil.x.y
nil | length
n | length
n | list
tiny, huge, f, 100000.0, 1e16, 1e15, 0.1 + 0.2, -0.0
f | string, tiny | string, t | string, big | string, xs | string, d | string, mixed | string
mixed, users
quote, [quote], ["it's"], ['"'], ["'\""], ['\u200b\ud7ff\x7f\xa0\xad']
[1.0, 1e22, none, true, missing, 'x']
s | upper, s | lower, uni | upper, uni | lower, uni | title, uni | capitalize, 'hello wOrld-foo (bar)' | title
'\u01c4x \u01c6' | upper, 'ab1c d_e' | title, "they're" | title, 'ΑΣ' | lower, 'ΑΣΑ' | lower, 'Σ' | lower
uni.upper(), uni.lower(), uni.title(), uni.capitalize(), uni.swapcase(), "they're bill's".title()
blank | trim | tojson, blank.strip() | tojson, blank.lstrip() | tojson, blank.rstrip() | tojson
'xxhixx' | trim('x'), 'xyhiyx'.strip('xy'), 'xyhiyx'.lstrip('yx'), 'xyhiyx'.rstrip('yx'), 'x'.strip(none)
'\u200b\ufeff x' | trim | tojson, '\x1c\x1d\x1e\x1f\x85a' | trim | tojson, 'éxé'.strip('é')
csv.split(','), csv.split(',', 1), csv.split(',', maxsplit=2), csv.rsplit(',', 1), csv.split('x'), ''.split(','), ''.split()
blank.split(), ' a  b c '.split(none, 1), ' a  b c '.rsplit(none, 1), 'a b'.split(' '), ' a b c '.split(none, 2), '  '.split(none, 0)
'a'.split('')
'</think>a</think>b'.split('</think>')[-1], 'aXbXc'.rsplit('X', 1)[0]
lines.splitlines(), lines.splitlines(true), ''.splitlines(), 'a\n'.splitlines(), 'a\x0bb\u2028c'.splitlines()
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-'), 'abc'.rpartition('-')
s.startswith('Hell'), s.startswith(('x', 'He')), s.endswith('ld'), s.startswith('W', 6), s.startswith('lo', 3, 5), s.startswith('')
s.startswith(1)
s.find('o'), s.find('o', 5), s.rfind('o'), s.find('zz'), s.index('W'), s.count('o'), s.count(''), uni.find('na'), s.count('l', 4)
s.index('zz')
s.replace('o', '0'), s.replace('o', '0', 1), s.replace('', '-'), s.replace('zz', 'y'), 'aaa'.replace('a', 'b', 2), ''.replace('', 'x')
s | replace('o', '0'), s | replace('o', '0', 1), n | replace(7, 8), 'abc' | replace('', '.', 2)
s.removeprefix('Hello '), s.removesuffix('World'), s.removeprefix('x')
'abc'.isalpha(), 'ab1'.isalnum(), '12'.isdigit(), ''.isdigit(), 'ABC'.isupper(), 'abc1'.islower(), ' '.isspace(), 'é'.isascii(), '1'.isnumeric()
'a'.ljust(3, '.'), 'a'.rjust(3), 'ab'.center(5, '*'), 'abc'.center(6, '*'), 'a'.center(4, '-'), '-5'.zfill(4), '5'.zfill(3)
'a'.ljust(3, 'xx')
','.join(words), ', '.join(['x']), ''.join([])
','.join([1])
s.nothing is defined, s.upper is callable, s.upper is string
s.nothing()
s.split(1, 2, 3)
s.split(foo=1)
words | join, words | join('-'), xs | join(', '), users | join(',', attribute='name'), [] | join, mixed | join('|'), 'abc' | join('.')
words | first, words | last, [] | first is defined, 'abc' | first, 'abc' | last, d | first, d | last
words | length, s | length, uni | length, d | length, [] | count, (1, 2) | length
words | list, 'abc' | list, d | list, (1, 2) | list, range(3) | list
words | reverse | list, 'abc' | reverse, d | reverse | list
words | sort, words | sort(reverse=true), words | sort(case_sensitive=true), xs | sort, users | sort(attribute='age') | map(attribute='name') | list
[1, 'a'] | sort
users | sort(attribute='age,name') | map(attribute='name') | list, [nosuch, missing] | sort, [{'a': [2]}, {'a': [1]}] | sort(attribute='a.0')
d | dictsort, {'b': 1, 'A': 2} | dictsort, {'b': 1, 'A': 2} | dictsort(true), {'x': 2, 'y': 1} | dictsort(by='value'), {'x': 2, 'y': 1} | dictsort(reverse=true)
d | items | list, missing | items | list, {} | items | list
n | items | list
d | items
users | map(attribute='name') | list, users | map(attribute='tags.0', default='-') | list, words | map('upper') | list, words | map('replace', 'a', 'z') | join
users | map(attribute='zip') | list | length, users | map(attribute='zip', default='?') | join
users | selectattr('age', 'equalto', 30) | map(attribute='name') | list, users | rejectattr('age', 'gt', 26) | map(attribute='name') | list
users | selectattr('tags') | map(attribute='name') | list, users | selectattr('tags', 'defined') | map(attribute='name') | list
xs | select('odd') | list, xs | reject('odd') | list, [0, 1, '', 'x'] | select | list, xs | select('>', 1) | list, xs | select('divisibleby', 2) | list
xs | map('nofilter') | list
xs | select('notest') | list
users | groupby('age'), users | groupby('age') | map('first') | list
xs | sum, users | sum(attribute='age'), [] | sum, xs | sum(start=10), [0.5, 1] | sum
xs | min, xs | max, words | min, words | max, [] | min is defined, users | max(attribute='age')
[1, 1, 2, 'a', 'A'] | unique | list, words | unique | list, ['a', 'A'] | unique(case_sensitive=true) | list
range(7) | batch(3) | list, range(7) | batch(3, 'x') | list, range(7) | slice(3) | list, range(7) | slice(3, 'x') | list
range(5), range(2, 5), range(5, 0, -2), range(0) | list, range(0, 10, 3) | list, range(3)[1], range(10)[::3]
range(1000000) | length
range(1, 2, 0)
f | round, 3.5 | round, 2.675 | round(2), f | int, 2.567 | round(1, 'floor'), 2.51 | round(1, 'ceil'), 42 | round, 1234 | round(-2), 15 | round(-1), 25 | round(-1)
'42' | int, '42.7' | int, 'x' | int, 'x' | int(5), '0x1A' | int(base=16), ' 12 ' | int, '1_000' | int, none | int(3), t | int, 3.9 | int, -3.9 | int, '' | int, '1e3' | int, huge | int, '123456789012345678901234567890' | int
'1.5' | float, 'x' | float, '1e-3' | float, n | float, ' 2 ' | float, none | float, 'x' | float(1.5)
-5 | abs, neg | abs, -2.5 | abs, true | abs
neg|abs + 1, -n|abs
mixed | tojson, d | tojson, s | tojson, none | tojson, big | tojson, f | tojson, quote | tojson, html | tojson, uni | tojson
users | tojson(indent=2)
users | tojson(indent=0)
{'a': [], 'b': {}, 'c': [1]} | tojson(indent=4)
uni | tojson(ensure_ascii=true), {'b': 1, 'a': 2} | tojson(sort_keys=true), xs | tojson(separators=(',', ':')), d | tojson(indent='--')
{1: 2, none: 3, 2.5: 4} | tojson, {true: 1} | tojson, (1, 2) | tojson, [1e22, 1e-7, 1.0] | tojson
d.items() | tojson
range(3) | tojson
{(1, 2): 3} | tojson
{1: 'a', 'b': 2} | tojson(sort_keys=true)
html | escape, html | e, html | safe, (html | safe) + html, html + (html | safe), (html | e) ~ html, (html | safe).replace('a', '<'), html | safe | upper, '<' | e | e, '<' | e | forceescape
('<' | safe) | string + '<', ('%s' | safe) % '<', ('<' | safe) | trim + '<', [html | safe], ('<,>' | safe).split(',')[0] + '&', ('<' | safe) * 2 + '&'
'%s and %d' % ('x', 5), '%05.2f|%-5s|%5s|%x|%X|%o|%e|%g|%c|%%|%r' % (3.14159, 'ab', 'cd', 255, 255, 8, 12345.678, 0.0001, 'z', 'q'), '%s' % 'x', '%(a)s-%(b)d' % d
'%+d % d %5d|%-5d|%05d|%.3d' % (1, 2, 3, 4, -5, 6), '%.2s' % 'abcdef', '%5.1f' % 2.25, '%d' % 3.99, '%i' % true, '%s %s' % (none, xs), '%#x' % 255, '%.0f' % 2.5, '%G' % 1e-10
'%d' % 'x'
'%s %s' % 'x'
'%s' % ('a', 'b')
'%q' % 1
'x' % 1
'%s, %s' | format('a', 1), '%(x)s' | format(x=3)
'abc' | center(9) | tojson, 'a\nb\n\nc' | indent, 'a\nb' | indent(2, true), 'a\n\nb' | indent(2, blank=true), 'a\nb' | indent('> '), 'a\n' | indent | tojson
'foo bar baz qux' | truncate(9), 'foo bar baz qux' | truncate(9, true), 'foo bar' | truncate(5), 'foo bar baz qux' | truncate(11, false, '…', 0)
'foo bar, baz_1' | wordcount, 'a b&c/d é' | urlencode, 5 | string | length
x | default('d'), s | d('x'), '' | default('e', true), false | default('f', boolean=true), s | default
s is string, n is string, s is iterable, xs is iterable, n is iterable, d is mapping, xs is mapping, d is iterable, d is sequence, s is sequence, xs is sequence, n is sequence, missing is iterable, missing is sequence, d.items() is sequence
n is number, f is number, t is number, s is number, t is boolean, n is integer, t is integer, f is float, n is float
nil is none, missing is none, nil is defined, missing is defined, missing is undefined, nil is not none, x is not defined
t is true, n is true, false is false, 0 is false, nil is false
3 is odd, 4 is even, 9 is divisibleby 3, 9 is divisibleby(2), 1 is eq 1, 1 is ne(2), 1 is lt 2, 2 is ge 2, 1 is in [1, 2], 'a' is in('abc'), 1 is sameas 1, 'A' is upper, 'a' is lower, 'abc' is callable, 'upper' is filter, 'odd' is test
1 is equalto 1, 'x' is == 'x', 1 is not eq 2
n is nosuchtest
s | nosuchfilter
d is mapping and d is not string and 'a' in d
xs is sequence and xs is not string, (xs is iterable) == true
namespace(a=1, b='x').b, namespace().q is defined, namespace({'k': 1}).k
dict(a=1, b=2), dict({'x': 1}, y=2), dict(d, a=0)['a']
raise_exception('Boom: ' ~ n)
raise_exception()
strftime_now('%Y-%m-%d %H:%M:%S %j %b %A %%'), strftime_now('')
nosuchfunction(1)
s()
loop is defined, caller is defined, varargs is defined
msgs[::-1][0].content, msgs[-1]['role'], msgs | length - 1
(msgs | map(attribute='role') | list)[0], (xs | first) + 1
msgs | selectattr('role', '==', 'user') | list | length
(xs | map('string') | list) is sequence, (xs | map('string')) is sequence, (xs | map('string')) is iterable
xs | map('string') | length
xs | map('string') | last
(xs | map('string'))[0] is defined
(xs | select('odd')) and 'true' or 'false', ([] | select) and 'true' or 'false'
'a' ~ 'b' in 'xab', 1 + 1 in [2], 'a' in 'b' ~ 'a'
'\n\t\\\'\"\x41\u00e9\U0001F600\101\q'
1 if
(1
1 +
'abc
{'a' 1}
a b
s.
s |
s is
1 2
f(a=1, 2)
f(**d, *xs)
s..x
@
x = 1
d | attr('a') is defined, d | attr('get') is defined
1 | center(3) | tojson
'abc'[1:2] ~ 'abc'[-1:], 'abc'[none], 'abc'[1.0] is defined
xs[1.0] is defined, d[1] is defined, d[xs] is defined
xs.index(1), xs.count(1), (1, 1).count(1), xs.index(99)
[missing, none] | tojson
[[1, [2, [3]]]] | string, (1, (2,)) | string, {'a': (1,)} | string
'%s' % xs, '%s' % d, '%s' % (xs,)
nosuch is defined, range is defined, range is callable
"{{ x }}", '{% if %}', "}}", {'a': {'b': 1}}
{'a': {'b': 1}}['a']['b'], [[1, 2], [3]][1][0]
-xs | first
- 5 + 3, +5, - -5, not -1
1.0 == 1, 1.5 is float, 1 is float, 10 ** 2, 10 // 3.0, 2 ** 62, 2 ** 0.5
1 if true else, 2
3 * 'ab' ~ 'c' * 2
none ~ none, true ~ false, [] ~ {}, 1.0 ~ 1
s | upper | lower | title | length
(s | upper).lower()[0:5] | capitalize
""".strip("\n").split("\n")
