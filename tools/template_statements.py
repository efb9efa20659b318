"""Whole templates, each about one feature, parted by lines of ====; rendered as template_snippets.py."""

STATEMENTS = r"""
{% for x in xs %}{{ x }}{% endfor %}
====
{% for x in xs %}
  {{ loop.index }}/{{ loop.length }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.previtem is defined }} {{ loop.nextitem is defined }} {{ loop.depth }}{{ loop.depth0 }}
{% endfor %}
====
{% for k, v in d.items() %}{{ k }}={{ v }};{% else %}none{% endfor %}|{% for x in [] %}{{ x }}{% else %}none{% endfor %}
====
{% for k, v in d | items %}{{ loop.index }}{{ k }}{{ loop.length }}{% endfor %}
====
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
====
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
====
{% for a, b in [1] %}{{ a }}{% endfor %}
====
{% for c in uni %}[{{ c }}]{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in missing %}x{% endfor %}
====
{% for x in n %}{{ x }}{% endfor %}
====
{% for x in none %}{{ x }}{% endfor %}
====
{% for x in range(10) if x is odd %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}
====
{% for x in range(10) %}{% if x == 3 %}{% continue %}{% endif %}{% if x == 6 %}{% break %}{% endif %}{{ x }}{% endfor %} {{ x is defined }}
====
{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {{ loop.index }}{% endfor %};{% endfor %}
====
{% set a = 1 %}{% for x in xs %}{% set a = a + x %}{{ a }} {% endfor %}{{ a }}
====
{% set ns = namespace(a=1, found=false) %}{% for x in xs %}{% set ns.a = ns.a + x %}{% set ns.found = true %}{% endfor %}{{ ns.a }}{{ ns.found }}{{ ns.zip is defined }}
====
{% set d.x = 1 %}
====
{% set nosuch.x = 1 %}
====
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = (3, 4) %}{{ c }}{{ d }}{% set e = 1, 2 %}{{ e }}
====
{% if t %}{% set inside = 1 %}{% endif %}{{ inside }}{% if zero %}{% set other = 1 %}{% endif %}{{ other is defined }}
====
{% if zero %}a{% elif n > 5 %}b{% elif t %}c{% else %}d{% endif %}{% if not zero and (n == 7 or zero) %}e{% endif %}
====
{% set x %}block {{ n }}{% set y = 1 %}{% endset %}{{ x }}|{{ y is defined }}|{{ x is string }}
====
{% set x | upper | trim %} block {{ n }} {% endset %}{{ x }}|
====
{% filter upper %}abc {{ s }}{% set q = 1 %}{% endfilter %}{{ q is defined }}
====
{% filter replace('a', 'b') | upper %}aXa{% endfilter %}
====
{% macro m(a, b=2, c=b) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=5) }} {{ m(b=1, a=0) }} {{ m() }}|{{ m(1) | upper }}{{ m(1) ~ 'x' }}{{ m(1) == '1-2-2' }}{{ m(1) is string }}
====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
====
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}
====
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in {{ n }}{% endcall %}
====
{% macro m(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i=0) m(xs) %}{{ i }}:{{ x }};{% endcall %}
====
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
====
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
====
{% macro fact(k) %}{{ 1 if k < 2 else k * (fact(k - 1) | int) }}{% endmacro %}{{ fact(10) }}
====
{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}{% set later = 6 %}{{ m() }}
====
{% macro m() %}{% set n = 99 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}
====
{% macro m() %}x{% endmacro %}{{ m.name }}{{ m is callable }}{{ m is defined }}{% set k = m %}{{ k() }}
====
{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}
====
{% for item in [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}]}] recursive %}{{ item.n }}@{{ loop.depth }}{% if item.c %}({{ loop(item.c) }}){% endif %}{% endfor %}
====
{% for x in xs %}{{ loop(xs) }}{% endfor %}
====
{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }}{% endfor %}
====
{% for x in xs %}{{ loop.nosuch is defined }}{{ loop }}{% endfor %}
====
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a is defined }}{{ c is defined }}
====
{% with %}{% set c = 3 %}{{ c }}{% endwith %}{{ c is defined }}
====
{% raw %}{{ not }} {% this %} {# kept #}{% endraw %}
after
====
a
  {% raw %}
 x
  {% endraw %}
b
====
a {%- raw -%}  x  {%- endraw -%}  b
====
{% generation %}text {{ n }}{% set z = 1 %}{% endgeneration %}{{ z is defined }}
====
{# a comment #}x{#- trimmed -#}  y
  {# own line #}
z
====
  {% if t %}
    indented
  {% endif %}
end
====
a  {%- if t -%}  b  {%- endif -%}  c
====
a
{%- if t %}

b
{%- endif %}
c
====
  {%+ if t %}x{% endif %}
====
{% if t +%}
x{% endif %}
====
x {{- n -}} y {{ n -}}
 z
====
	{% if t %}	
y	{% endif %}	
====
{{ n }}
{{ n }}

{% if t %}
{% endif %}

====
line one\
{{ "a" }}{{ 'b' }}
{%- set x = [
  1,
  2
] -%}
{{ x }}
====
{% set messages = msgs[1:] %}{% for m in messages %}{{ m.role }}{% endfor %}{{ messages | length }}
====
{%- for m in msgs -%}
  {%- if m['role'] == 'user' -%}
    {{ '<u>' + m['content'] | trim + '</u>' }}
  {%- else -%}
    {{- '<a>' ~ m.content ~ '</a>' -}}
  {%- endif -%}
{%- endfor -%}
====
{{- 'a' if loop is defined else 'b' -}}
====
{% print n, s %}{% print n %}
====
{% for x in xs %}{{ x }}
====
{% endfor %}
====
{% if t %}{% endfor %}
====
{% nosuchtag %}
====
{{ n
====
{% break %}
====
{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
====
{# open
====
{% raw %} open
====
{% set true = 1 %}
====
{% macro m(a=1, b) %}{% endmacro %}
====
{% if t %}a{% else %}b{% else %}c{% endif %}
====
{% if %}x{% endif %}
====
{% for x in xs recursive %}{{ x }}{% endfor %}{{ recursive is defined }}
====
{% set ns = namespace(l=[]) %}{% for x in xs %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l }}{{ ns.l | tojson }}
====
{% if 0 %}{{ n | nosuchfilter }}{{ n is nosuchtest }}{% endif %}ok
====
{% macro outer() %}{% macro inner() %}i{{ n }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
====
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}
====
{% for i in [1, 2] %}{{ y is defined }}{% set y = i %}{{ y }}{% endfor %}{{ y is defined }}
====
{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.previtem }}{% else %}e{% endfor %}{% for x in xs if x > 9 %}{% else %}e{% endfor %}
====
{% for x in xs %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% else %}e{% endfor %}
====
{% call nosuch() %}{% endcall %}
====
{% set s = 'x' %}{{ s }}{% set i = 'inf' | float %}{{ i }}{{ -i }}{{ i | tojson }}
====
{{ "a" -}}   
   {{- "b" }}
====
{{ [
 1,
 2] }} {{ {
 'a':
 1} }}
====
{% if x is defined %}a{% elif x is not defined and n is defined %}b{% endif %}
====
{%if t%}{{n}}{%endif%}{%-   if   t   -%}y{%-endif-%}
====
{% set gen = xs | map('string') %}{{ gen | list }}{{ gen | list }}{% set g2 = d | items %}{% for k, v in g2 %}{{ k }}{% endfor %}{% for k, v in g2 %}{{ k }}{% endfor %}
====
{% for x in xs | select('odd') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}
""".strip("\n").split("\n====\n")
