"""Every call of the client, by the name of its SQL function."""

from mindful_client.calls.chat.chat import *  # noqa: F403
from mindful_client.calls.confidence.calibration import *  # noqa: F403
from mindful_client.calls.confidence.report import *  # noqa: F403
from mindful_client.calls.confidence.review import *  # noqa: F403
from mindful_client.calls.confidence.tune import *  # noqa: F403
from mindful_client.calls.conversation.completion import *  # noqa: F403
from mindful_client.calls.conversation.session import *  # noqa: F403
from mindful_client.calls.conversation.tool import *  # noqa: F403
from mindful_client.calls.core.key import *  # noqa: F403
from mindful_client.calls.core.setting import *  # noqa: F403
from mindful_client.calls.generate.each import *  # noqa: F403
from mindful_client.calls.generate.llm import *  # noqa: F403
from mindful_client.calls.learning.consolidation import *  # noqa: F403
from mindful_client.calls.learning.training import *  # noqa: F403
from mindful_client.calls.memory.document import *  # noqa: F403  # noqa: F403
from mindful_client.calls.memory.forget import *  # noqa: F403
from mindful_client.calls.memory.link import *  # noqa: F403
from mindful_client.calls.memory.list import *  # noqa: F403
from mindful_client.calls.memory.queue import *  # noqa: F403
from mindful_client.calls.memory.recall import *  # noqa: F403
from mindful_client.calls.memory.sweep import *  # noqa: F403
from mindful_client.calls.memory.transfer import *  # noqa: F403
from mindful_client.calls.memory.update import *  # noqa: F403
from mindful_client.calls.models.registry import *  # noqa: F403
from mindful_client.calls.models.status import *  # noqa: F403
