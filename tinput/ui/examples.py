"""Texts to begin with, one click each. Each shows something about tokens or positions."""

__all__ = ["EXAMPLES"]

EXAMPLES = {
    "Repeated words": "The man and the house and the man and the house and the man",
    "Emoji and Chinese": "我喜欢猫 🐱, she said, and 🦙 llamas; 你呢? 👩‍👩‍👧",
    "Code": 'def greet(name):\n    for i in range(3):\n        print(f"{i}: hello, {name}")\n',
    "Long paragraph": (
        "It was a bright morning in early spring, and the road that led from the village to the sea was still wet "
        "from the night's rain. A man and a boy walked along it without speaking. The man carried a small box under "
        "his arm; the boy carried nothing, and kept stopping to look at the birds that rose from the hedges as they "
        "passed. When they came to the place where the road divides, the man put down the box and looked for a long "
        "time at the boy. The boy looked at the box. Neither of them had asked the question, and yet both of them "
        "knew that the other knew it: what was in the box, and why had it to be carried to the sea on this morning "
        "and no other? The birds came back to the hedge. The rain began again, very softly, and the man took up the "
        "box, and they went on along the road, the man in front and the boy behind him, toward the sound of the sea."
    ),
}
