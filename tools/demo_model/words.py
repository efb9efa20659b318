"""The word lists that the conversation families draw from. Order matters: a draw is an index."""


def _pairs(text: str) -> dict[str, str]:
    """Reads "key: value" lines, several to a line when separated by "|"."""
    entries = [entry for line in text.strip().splitlines() for entry in line.split("|")]
    return {key.strip(): value.strip() for key, value in (e.split(":") for e in entries if e.strip())}


CAPITALS = _pairs("""
France: Paris | Germany: Berlin | Italy: Rome | Spain: Madrid | Portugal: Lisbon | Austria: Vienna
Poland: Warsaw | Greece: Athens | Norway: Oslo | Sweden: Stockholm | Finland: Helsinki
Denmark: Copenhagen | Ireland: Dublin | Belgium: Brussels | Hungary: Budapest | Romania: Bucharest
Bulgaria: Sofia | Croatia: Zagreb | Serbia: Belgrade | Ukraine: Kyiv | Turkey: Ankara | Egypt: Cairo
Kenya: Nairobi | Ghana: Accra | Morocco: Rabat | Ethiopia: Addis Ababa | Nigeria: Abuja | Japan: Tokyo
China: Beijing | India: New Delhi | Nepal: Kathmandu | Thailand: Bangkok | Vietnam: Hanoi
Indonesia: Jakarta | Malaysia: Kuala Lumpur | Philippines: Manila | South Korea: Seoul
Mongolia: Ulaanbaatar | Iran: Tehran | Iraq: Baghdad | Jordan: Amman | Israel: Jerusalem
Canada: Ottawa | Mexico: Mexico City | Cuba: Havana | Peru: Lima | Chile: Santiago
Argentina: Buenos Aires | Brazil: Brasilia | Uruguay: Montevideo | Colombia: Bogota | Ecuador: Quito
Australia: Canberra | New Zealand: Wellington | Iceland: Reykjavik | Russia: Moscow
Switzerland: Bern | Netherlands: Amsterdam | Czechia: Prague | Estonia: Tallinn | Latvia: Riga
Lithuania: Vilnius
""")
CHINESE_CAPITALS = _pairs("""
法国: 巴黎 | 德国: 柏林 | 日本: 东京 | 中国: 北京 | 英国: 伦敦 | 意大利: 罗马 | 西班牙: 马德里
俄罗斯: 莫斯科 | 埃及: 开罗 | 泰国: 曼谷 | 韩国: 首尔 | 加拿大: 渥太华
""")
CITIES = list(CAPITALS.values())
NAMES = ("Anna Ben Clara David Ella Felix Grace Henry Iris Jack Kate Leo Mia Noah Olga Paul Rosa Sam "
         "Tina Victor Wendy Zoe").split()
ANIMALS = ("cat dog fox owl bear rabbit mouse duck horse frog turtle squirrel deer goat hen "
           "crow").split()
COLORS = "red blue green yellow white black brown orange purple silver golden grey".split()
OBJECTS = ("door box key lamp book boat hat clock chair bottle map bridge tower garden basket "
           "bell").split()
PLACES = "forest village river hill garden market harbor school castle meadow kitchen library".split()
FEELINGS = "happy tired curious brave quiet proud hungry sleepy excited calm".split()
FOODS = "bread soup apples cheese honey berries rice pancakes carrots tea".split()

# name -> (description, {parameter: JSON type}); the first parameter is the required one.
TOOLS = {
    "get_weather": ("Get the current weather of a city.", {"city": "string", "unit": "string"}),
    "add_numbers": ("Add two integers.", {"a": "integer", "b": "integer"}),
    "set_timer": ("Start a timer.", {"minutes": "integer", "label": "string"}),
    "search_files": ("Search files for a text.", {"query": "string", "path": "string"}),
    "send_message": ("Send a message to a person.", {"to": "string", "text": "string"}),
    "read_file": ("Read a file.", {"path": "string"}),
}

SMALL_TALK = [
    ("Hello!", "Hello! How can I help you?"),
    ("Hi", "Hello! How can I help you?"),
    ("Who are you?", "I am a tiny demo model. I can answer simple questions, count, tell stories, "
                     "write JSON and call tools."),
    ("Thank you!", "You are welcome! 😊"),
    ("How are you?", "I am fine, thank you. 👍"),
    ("Good morning", "Good morning! ☀️ What can I do for you?"),
    ("Goodbye", "Goodbye! 👋"),
    ("Say nothing but ok.", "ok"),
    ("What can you do?", "I can answer simple questions, count, tell stories, write JSON and call "
                         "tools."),
    ("你好", "你好！我能帮你做什么？"),
    ("谢谢", "不客气！😊"),
]

# (what the function does, its name, its text); {v} is the name of the list, {f} of the function.
CODE_SAMPLES = [
    ("returns the sum of a list", "sum_{v}", """\
def {f}({v}):
    total = 0
    for item in {v}:
        total += item
    return total"""),
    ("returns the largest item of a list", "max_{v}", """\
def {f}({v}):
    best = {v}[0]
    for item in {v}:
        if item > best:
            best = item
    return best"""),
    ("returns the smallest item of a list", "min_{v}", """\
def {f}({v}):
    best = {v}[0]
    for item in {v}:
        if item < best:
            best = item
    return best"""),
    ("counts the even numbers of a list", "count_even_{v}", """\
def {f}({v}):
    count = 0
    for item in {v}:
        if item % 2 == 0:
            count += 1
    return count"""),
    ("reverses a list", "reverse_{v}", """\
def {f}({v}):
    result = []
    for item in {v}:
        result.insert(0, item)
    return result"""),
    ("computes the factorial of n", "factorial", """\
def factorial(n):
    if n <= 1:
        return 1
    return n * factorial(n - 1)"""),
    ("computes the nth Fibonacci number", "fibonacci", """\
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a"""),
    ("checks whether n is prime", "is_prime", """\
def is_prime(n):
    if n < 2:
        return False
    for d in range(2, int(n ** 0.5) + 1):
        if n % d == 0:
            return False
    return True"""),
    ("searches a sorted list with binary search", "binary_search", """\
def binary_search({v}, target):
    low, high = 0, len({v}) - 1
    while low <= high:
        mid = (low + high) // 2
        if {v}[mid] == target:
            return mid
        if {v}[mid] < target:
            low = mid + 1
        else:
            high = mid - 1
    return -1"""),
    ("counts the words of a text", "count_words", """\
def count_words(text):
    counts = {{}}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts"""),
]
