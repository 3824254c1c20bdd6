"""Messages and the blocks they are made of."""

from treadle.message._blocks import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    OutputBlock,
    PathSource,
    Source,
    Status,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from treadle.message._codec import msg_from_json, msg_to_json
from treadle.message._msg import Msg, Role

__all__ = [
    "AudioBlock",
    "Base64Source",
    "Block",
    "FileBlock",
    "ImageBlock",
    "Msg",
    "OutputBlock",
    "PathSource",
    "Role",
    "Source",
    "Status",
    "TextBlock",
    "ThinkingBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "URLSource",
    "VideoBlock",
    "msg_from_json",
    "msg_to_json",
]
